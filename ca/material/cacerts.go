package material

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca"
)

// The files of Istio's cacerts Secret.
const (
	certFile  = "ca-cert.pem"    // the issuer
	keyFile   = "ca-key.pem"     // its private key
	chainFile = "cert-chain.pem" // from the issuer up; the issuer and the root may be left out
	rootFile  = "root-cert.pem"  // the trust bundle
)

// The errors that somebody has another advice for than to look into the files.
var (
	ErrIncomplete = errors.New("the CA's files are incomplete")
	ErrOtherKey   = errors.New("the key is not that of the certificate")
)

// Load reads a CA in the layout of Istio's cacerts Secret: ca-cert.pem,
// ca-key.pem, cert-chain.pem and root-cert.pem. All four must be there, and all
// but the chain must have something in them.
//
// Nothing in a file is passed over in silence: damage is an error, and what can
// be done without is left out with a warning, which is returned beside an error
// too. Whether the parts make a CA is for [ca.NewAuthority] to find out; Load
// judges each certificate by itself, so that it can name file and line.
func Load(now time.Time, read func(name string) ([]byte, error)) (ca.Material, []Warning, error) {
	files, err := readAll(read)
	if err != nil {
		return ca.Material{}, nil, err
	}
	s, err := parseAll(files)
	if err != nil {
		return ca.Material{}, nil, err
	}
	warnings := s.warnings()
	if err := s.judge(now); err != nil {
		return ca.Material{}, warnings, err
	}
	return s.material(), warnings, nil
}

// readAll reads the files. It names every file that is missing or empty, not
// only the first.
func readAll(read func(string) ([]byte, error)) (map[string]string, error) {
	files := make(map[string]string)
	var missing, empty []string
	for _, name := range []string{certFile, keyFile, chainFile, rootFile} {
		data, err := read(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, name)
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", name, err)
		case len(bytes.TrimSpace(data)) == 0 && name != chainFile:
			empty = append(empty, name)
		}
		files[name] = string(data)
	}
	var faults []string
	if len(missing) != 0 {
		faults = append(faults, "missing: "+strings.Join(missing, ", "))
	}
	if len(empty) != 0 {
		faults = append(faults, "empty: "+strings.Join(empty, ", "))
	}
	if len(faults) != 0 {
		return nil, fmt.Errorf("%w (%s)", ErrIncomplete, strings.Join(faults, "; "))
	}
	return files, nil
}

// A set is what the files hold, each part well-formed.
type set struct {
	signer               crypto.Signer
	issuer, chain, roots []source // of ca-cert.pem, cert-chain.pem, root-cert.pem
	strangers            []stranger
}

func parseAll(files map[string]string) (*set, error) {
	signer, err := parseKey(keyFile, files[keyFile])
	if err != nil {
		return nil, err
	}
	s := set{signer: signer}
	for _, f := range []struct {
		name  string
		certs *[]source
	}{{certFile, &s.issuer}, {chainFile, &s.chain}, {rootFile, &s.roots}} {
		certs, strangers, err := parseCerts(f.name, files[f.name])
		if err != nil {
			return nil, err
		}
		if len(certs)+len(strangers) == 0 && f.name != chainFile {
			return nil, fault(f.name, 1, "there is no certificate in it")
		}
		*f.certs = certs
		s.strangers = append(s.strangers, strangers...)
	}
	return &s, nil
}

// judge reports the first certificate that cannot be what its file makes of it.
func (s *set) judge(now time.Time) error {
	if err := s.judgeStrangers(); err != nil {
		return err
	}
	if len(s.issuer) != 0 && !isKeyOf(s.signer, s.issuer[0].cert) {
		return fault(keyFile, 1, "%w in %s: that is %s", ErrOtherKey, certFile, ca.Describe(s.issuer[0].cert))
	}
	for i, c := range slices.Concat(s.issuer, s.chain) {
		// A root that is repeated in the chain is not used from there.
		if i > 0 && bytes.Equal(c.cert.RawSubject, c.cert.RawIssuer) {
			continue
		}
		if err := ca.CheckCA(now, c.cert); err != nil {
			return fault(c.file, c.line, "%w", err)
		}
	}
	for _, c := range s.roots {
		if err := ca.CheckAnchor(c.cert); err != nil {
			return fault(c.file, c.line, "%w", err)
		}
	}
	return nil
}

func isKeyOf(signer crypto.Signer, cert *x509.Certificate) bool {
	public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(cert.PublicKey)
}

// judgeStrangers reports a certificate that our parser refuses, but that cannot
// be done without.
func (s *set) judgeStrangers() error {
	for _, x := range s.strangers {
		if x.file == certFile {
			return fault(x.file, x.line, "%s cannot be used: %w", x.name, x.err)
		}
		path := slices.Concat(s.issuer, s.chain)
		if c, ok := x.issued(path, slices.Concat(path, s.roots)); ok {
			return fault(x.file, x.line, "%s cannot be used, but it issued %s: %w", x.name, ca.Describe(c.cert), x.err)
		}
	}
	return nil
}

func (s *set) warnings() []Warning {
	var all []Warning
	for _, x := range s.strangers {
		all = append(all, Warning{x.file, x.line, fmt.Sprintf("%s is left out: %v", x.name, x.err)})
	}
	return all
}

// material puts the parts together. The chain file may or may not repeat the
// issuer; [ca.NewAuthority] sees to repetitions.
func (s *set) material() ca.Material {
	return ca.Material{
		Signer: s.signer,
		Chain:  certsOf(slices.Concat(s.issuer, s.chain)),
		Roots:  certsOf(s.roots),
	}
}

func certsOf(sources []source) []*x509.Certificate {
	certs := make([]*x509.Certificate, len(sources))
	for i, s := range sources {
		certs[i] = s.cert
	}
	return certs
}

// Files returns what [Load] reads back as m, by file name. It includes the
// private key.
func Files(m ca.Material) (map[string][]byte, error) {
	if len(m.Chain) == 0 {
		return nil, errors.New("there is no signing certificate to write")
	}
	der, err := x509.MarshalPKCS8PrivateKey(m.Signer)
	if err != nil {
		return nil, fmt.Errorf("encoding the signing key: %w", err)
	}
	return map[string][]byte{
		certFile:  encode(m.Chain[:1]),
		keyFile:   pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		chainFile: encode(m.Chain),
		rootFile:  encode(m.Roots),
	}, nil
}

func encode(certs []*x509.Certificate) []byte {
	var out []byte
	for _, cert := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	return out
}
