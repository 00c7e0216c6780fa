package material

import (
	"crypto"
	"crypto/x509"
)

// parseKey returns the one private key in a file. What parsers say about a key
// that they cannot read is not passed on.
func parseKey(file, data string) (crypto.Signer, error) {
	blocks, err := parseBlocks(file, data)
	if err != nil {
		return nil, err
	}
	var key *block
	for _, b := range blocks {
		switch {
		// OpenSSL writes the curve of an EC key in a block before it. The key
		// says it again (RFC 5915, Section 3).
		case b.label == "EC PARAMETERS" && key == nil:
		case key != nil:
			return nil, fault(file, b.line, "there is a %s block after the private key, where nothing should be", b.label)
		default:
			key = &b
		}
	}
	if key == nil {
		return nil, fault(file, 1, "there is no private key in it")
	}
	return key.signer(file)
}

func (b *block) signer(file string) (crypto.Signer, error) {
	var key any
	var err error
	switch {
	case b.encrypted || b.label == "ENCRYPTED PRIVATE KEY":
		return nil, fault(file, b.line, "found an encrypted private key: it must be without a passphrase")
	case b.label == "PRIVATE KEY": // RFC 5958
		key, err = x509.ParsePKCS8PrivateKey(b.der)
	case b.label == "RSA PRIVATE KEY": // RFC 8017, Appendix A.1.2
		key, err = x509.ParsePKCS1PrivateKey(b.der)
	case b.label == "EC PRIVATE KEY": // RFC 5915
		key, err = x509.ParseECPrivateKey(b.der)
	default:
		return nil, fault(file, b.line, "found a %s block, not a private key", b.label)
	}
	if err != nil {
		return nil, fault(file, b.line, "the %s block cannot be read as one", b.label)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fault(file, b.line, "found a private key of type %T, which cannot sign", key)
	}
	return signer, nil
}
