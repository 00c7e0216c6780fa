package conformance

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"io"
	"math/big"
	"sync"
)

// CSRs and keys that the standard library refuses to make.

// A draft is a CSR (RFC 2986, Section 4) to be made by hand.
type draft struct {
	key        crypto.Signer
	uri        string
	attributes []asn1.RawValue // beside the one for the URI
	signer     crypto.Signer   // key if nil
	digest     []byte          // what to sign, that of the CSR if nil
}

// sign makes the CSR.
func (d draft) sign() (string, error) {
	spki, err := x509.MarshalPKIXPublicKey(d.key.Public())
	if err != nil {
		return "", fmt.Errorf("encoding the public key: %w", err)
	}
	names, err := requestedURI(d.uri)
	if err != nil {
		return "", err
	}
	info, err := asn1.Marshal(struct {
		Version            int
		Subject, PublicKey asn1.RawValue
		Attributes         []asn1.RawValue `asn1:"tag:0"`
	}{0, asn1.RawValue{FullBytes: []byte{0x30, 0}}, asn1.RawValue{FullBytes: spki}, append([]asn1.RawValue{names}, d.attributes...)})
	if err != nil {
		return "", fmt.Errorf("encoding the request: %w", err)
	}
	signer, digest := d.signer, d.digest
	if signer == nil {
		signer = d.key
	}
	if digest == nil {
		sum := sha256.Sum256(info)
		digest = sum[:]
	}
	signature, err := signer.Sign(rand.Reader, digest, crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("signing the request: %w", err)
	}
	algorithm := pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}}
	if _, ok := d.key.Public().(*rsa.PublicKey); ok {
		algorithm = pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue}
	}
	der, err := asn1.Marshal(struct {
		Info      asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{asn1.RawValue{FullBytes: info}, algorithm, asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}})
	if err != nil {
		return "", fmt.Errorf("encoding the request: %w", err)
	}
	return armoured("CERTIFICATE REQUEST", der), nil
}

// requestedURI makes the attribute of RFC 2985, Section 5.4.2, that asks for a
// SAN.
func requestedURI(uri string) (asn1.RawValue, error) {
	san, err := uriSAN(true, uri)
	if err != nil {
		return asn1.RawValue{}, fmt.Errorf("encoding the names: %w", err)
	}
	der, err := asn1.Marshal(struct {
		ID     asn1.ObjectIdentifier
		Values [][]pkix.Extension `asn1:"set"`
	}{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14}, [][]pkix.Extension{{san}}})
	if err != nil {
		return asn1.RawValue{}, fmt.Errorf("encoding the names: %w", err)
	}
	return asn1.RawValue{FullBytes: der}, nil
}

// A fixed signer has one signature for everything.
type fixed struct {
	public    crypto.PublicKey
	signature []byte
}

func (f fixed) Public() crypto.PublicKey { return f.public }

func (f fixed) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) { return f.signature, nil }

// A plainRSA key signs SHA-256 digests by RFC 8017, Section 8.2.1, whatever its
// size and exponent.
type plainRSA struct {
	public *rsa.PublicKey
	root   func(m *big.Int) *big.Int // RSASP1
}

func (k *plainRSA) Public() crypto.PublicKey { return k.public }

func (k *plainRSA) Sign(_ io.Reader, digest []byte, _ crypto.SignerOpts) ([]byte, error) {
	info, err := asn1.Marshal(struct {
		Algorithm pkix.AlgorithmIdentifier
		Digest    []byte
	}{pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}, Parameters: asn1.NullRawValue}, digest})
	if err != nil {
		return nil, fmt.Errorf("encoding the digest: %w", err)
	}
	em := bytes.Repeat([]byte{0xff}, k.public.Size())
	em[0], em[1], em[len(em)-len(info)-1] = 0, 1, 0
	copy(em[len(em)-len(info):], info)
	return k.root(new(big.Int).SetBytes(em)).FillBytes(em), nil
}

// exponentOne makes a key with which everybody can sign: what is signed is its
// own signature.
func exponentOne(like crypto.PublicKey) (*plainRSA, error) {
	public, ok := like.(*rsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("a key of type %T is not RSA", like)
	}
	return &plainRSA{&rsa.PublicKey{N: public.N, E: 1}, func(m *big.Int) *big.Int { return m }}, nil
}

// hugeRSA makes a key of many small primes: two of half its size would take
// minutes to find, and seconds to use.
func hugeRSA(bits int) (*plainRSA, error) {
	const each, e = 512, 65537
	one := big.NewInt(1)
	n := big.NewInt(1)
	var primes, exponents []*big.Int
	for len(primes) < bits/each {
		p, err := rand.Prime(rand.Reader, each)
		if err != nil {
			return nil, fmt.Errorf("looking for a prime: %w", err)
		}
		if d := new(big.Int).ModInverse(big.NewInt(e), new(big.Int).Sub(p, one)); d != nil {
			n.Mul(n, p)
			primes, exponents = append(primes, p), append(exponents, d)
		}
	}
	return &plainRSA{&rsa.PublicKey{N: n, E: e}, func(m *big.Int) *big.Int {
		s := new(big.Int)
		for i, p := range primes { // the Chinese remainder theorem
			rest := new(big.Int).Div(n, p)
			part := new(big.Int).Exp(m, exponents[i], p)
			part.Mul(part, new(big.Int).ModInverse(rest, p))
			s.Add(s, part.Mul(part, rest))
		}
		return s.Mod(s, n)
	}}, nil
}

// A keyring makes RSA keys once: it takes long, and no case is about which they
// are.
type keyring struct {
	mu  sync.Mutex
	rsa map[int]crypto.Signer
}

// rsa returns a key of so many bits.
func (t *T) rsa(bits int) crypto.Signer {
	t.keys.mu.Lock()
	defer t.keys.mu.Unlock()
	if t.keys.rsa == nil {
		t.keys.rsa = map[int]crypto.Signer{}
	}
	if t.keys.rsa[bits] == nil {
		t.keys.rsa[bits] = t.key(newRSA(bits))
	}
	return t.keys.rsa[bits]
}

func newRSA(bits int) (crypto.Signer, error) {
	if bits > 4096 {
		return hugeRSA(bits)
	}
	return rsa.GenerateKey(rand.Reader, bits)
}
