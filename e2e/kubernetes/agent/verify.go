package agent

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc/codes"
)

// Leaf returns the certificate of an answer that is one: for the key that was
// asked for, with a path to the root that was given when connecting, by the
// judgement of crypto/x509 for both purposes and of go-spiffe. The identity is
// the certificate's only URI.
func (a Answer) Leaf() (*x509.Certificate, error) {
	if a.Code != codes.OK {
		return nil, fmt.Errorf("no certificate: %v: %s", a.Code, a.Message)
	}
	path, err := a.path()
	if err != nil {
		return nil, err
	}
	leaf := path[0]
	switch {
	case !a.key.PublicKey.Equal(leaf.PublicKey):
		return nil, errors.New("the certificate is for another key")
	case len(leaf.URIs) != 1:
		return nil, fmt.Errorf("the certificate has %d URIs", len(leaf.URIs))
	}
	return leaf, errors.Join(a.verifyX509(path), a.verifySPIFFE(path))
}

// Identity returns the SPIFFE ID in the certificate of an answer that is one.
func (a Answer) Identity() (string, error) {
	leaf, err := a.Leaf()
	if err != nil {
		return "", err
	}
	return leaf.URIs[0].String(), nil
}

// path parses the answer as node proxies do: the first certificate of each
// element but the last, which is the trust bundle.
func (a Answer) path() ([]*x509.Certificate, error) {
	if len(a.Chain) < 2 {
		return nil, fmt.Errorf("a chain of %d elements", len(a.Chain))
	}
	var path []*x509.Certificate
	for i, element := range a.Chain[:len(a.Chain)-1] {
		certs, err := parse(element)
		switch {
		case err != nil:
			return nil, fmt.Errorf("element %d of the chain: %w", i, err)
		case len(certs) != 1:
			return nil, fmt.Errorf("element %d of the chain has %d certificates", i, len(certs))
		}
		path = append(path, certs[0])
	}
	bundle, err := parse(a.Chain[len(a.Chain)-1])
	switch {
	case err != nil:
		return nil, fmt.Errorf("the trust bundle: %w", err)
	case !contains(bundle, a.root):
		return nil, errors.New("the trust bundle is without the root")
	}
	return path, nil
}

func parse(text string) ([]*x509.Certificate, error) {
	var der []byte
	for rest := []byte(text); len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, fmt.Errorf("no PEM: %q", rest)
		}
		der = append(der, block.Bytes...)
	}
	return x509.ParseCertificates(der)
}

func contains(certs []*x509.Certificate, c *x509.Certificate) bool {
	for _, have := range certs {
		if have.Equal(c) {
			return true
		}
	}
	return false
}

func (a Answer) verifyX509(path []*x509.Certificate) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(a.root)
	for _, c := range path[1:] {
		between.AddCert(c)
	}
	var errs error
	for _, purpose := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		_, err := path[0].Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{purpose},
		})
		errs = errors.Join(errs, err)
	}
	return errs
}

func (a Answer) verifySPIFFE(path []*x509.Certificate) error {
	id, err := spiffeid.FromURI(path[0].URIs[0])
	if err != nil {
		return err
	}
	bundle := x509bundle.FromX509Authorities(id.TrustDomain(), []*x509.Certificate{a.root})
	got, _, err := x509svid.Verify(path, bundle)
	switch {
	case err != nil:
		return err
	case got != id:
		return fmt.Errorf("go-spiffe reads %v where crypto/x509 reads %v", got, id)
	}
	return nil
}

// VerifyOpenSSL has openssl judge the answer as well.
func (a Answer) VerifyOpenSSL(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Fatalf("%v; install it (Debian: apt-get install openssl)", err)
	}
	path, err := a.path()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := map[string]string{"leaf.pem": "", "path.pem": "", "root.pem": encode(a.root)}
	files["leaf.pem"] = encode(path[0])
	for _, c := range path[1:] {
		files["path.pem"] += encode(c)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, purpose := range []string{"sslclient", "sslserver"} {
		args := []string{"verify", "-x509_strict", "-purpose", purpose, "-CAfile", "root.pem"}
		if len(path) > 1 {
			args = append(args, "-untrusted", "path.pem")
		}
		cmd := exec.CommandContext(t.Context(), "openssl", append(args, "leaf.pem")...) //nolint:gosec // the arguments are ours
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("openssl verify for %s: %v\n%s", purpose, err, out)
		}
	}
}

func encode(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}
