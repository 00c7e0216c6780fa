package ztunnel

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestIdentities(t *testing.T) {
	for text, want := range map[string]Identity{
		"spiffe://cluster.local/ns/shop/sa/cart": {"cluster.local", "shop", "cart"},
		"spiffe:///ns/shop/sa/cart":              {"", "shop", "cart"},
		"spiffe://A B/ns//sa/":                   {"A B", "", ""},
	} {
		if got, err := ParseIdentity(text); err != nil || got != want || got.String() != text {
			t.Errorf("[2.2] %q is read as %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "spiffe://", "https://cluster.local/ns/shop/sa/cart", "spiffe://cluster.local/ns/shop/sa/cart/", "spiffe://cluster.local/sa/shop/ns/cart", "SPIFFE://d/ns/a/sa/b"} {
		if got, err := ParseIdentity(text); err == nil {
			t.Errorf("[2.2] %q is read as %q", text, got)
		}
	}
}

func TestReplies(t *testing.T) {
	root, other := newIssuer(t, "root", nil), newIssuer(t, "other root", nil)
	upper := newIssuer(t, "upper", root)
	lower := newIssuer(t, "lower", upper)
	leaf := lower.sign(t, workload(t, named("cart").String()), newKey(t))
	notPEM := "-----BEGIN CERTIFICATE-----\nAAAA\n"
	key := "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"
	for _, tt := range []struct {
		name  string
		reply []string
		want  string // names of the issuers | names of the roots; or an error
	}{
		{"nothing", nil, "error: the reply is empty"},
		{"a leaf alone", []string{encode(leaf)}, "error: the reply has no roots"},
		{"leaf and root", []string{encode(leaf), encode(root.cert)}, "| root"},
		{"in order", []string{encode(leaf), encode(lower.cert), encode(upper.cert), encode(root.cert)}, "lower upper | root"},
		{"in another order, which nobody checks", []string{encode(leaf), encode(upper.cert), encode(lower.cert), encode(root.cert)}, "upper lower | root"},
		{"two issuers in one element, of which one is lost", []string{encode(leaf), encode(lower.cert, upper.cert), encode(root.cert)}, "lower | root"},
		{"an issuer behind the leaf, which is lost", []string{encode(leaf, lower.cert), encode(root.cert)}, "| root"},
		{"a key behind the leaf, which is not looked at", []string{encode(leaf) + key, encode(root.cert)}, "| root"},
		{"all roots", []string{encode(leaf), encode(root.cert, other.cert)}, "| root other root"},
		{"a key among the roots", []string{encode(leaf), encode(root.cert) + key + encode(other.cert)}, "error: the roots of the reply: it has a EC PRIVATE KEY"},
		{"text around the roots", []string{encode(leaf), "# ours\n" + encode(root.cert) + "\n# and theirs\n" + encode(other.cert) + "\n"}, "| root other root"},
		{"an issuer for a root, as it is", []string{encode(leaf), encode(lower.cert), encode(upper.cert)}, "lower | upper"},
		{"the root among the issuers", []string{encode(leaf), encode(root.cert), encode(root.cert)}, "root | root"},
		{"no PEM", []string{notPEM, encode(root.cert)}, "error: element 0 of the reply: there is no PEM"},
		{"an empty element", []string{encode(leaf), "", encode(root.cert)}, "error: element 1 of the reply: there is no PEM"},
		{"empty roots", []string{encode(leaf), ""}, "error: the roots of the reply: there is no PEM"},
	} {
		t.Run(tt.name+" [2.1]", func(t *testing.T) {
			if diff := cmp.Diff(tt.want, summary(parseReply(tt.reply))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func summary(c *Certificate, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	var words []string
	for _, i := range c.Chain {
		words = append(words, i.Subject.CommonName)
	}
	words = append(words, "|")
	for _, r := range c.Roots {
		words = append(words, r.Subject.CommonName)
	}
	return strings.Join(words, " ")
}

func TestIdentityOfReplies(t *testing.T) {
	root := newIssuer(t, "root", nil)
	want := named("cart")
	for _, tt := range []struct {
		name      string
		uris      []string
		dedicated bool
		bad       bool
	}{
		{"the one asked for", []string{want.String()}, false, false},
		{"of another account", []string{named("pay").String()}, false, true},
		{"of another trust domain", []string{"spiffe://other.local/ns/shop/sa/cart"}, false, true},
		{"in other letters", []string{"spiffe://Cluster.Local/ns/shop/sa/cart"}, false, true},
		{"none", nil, false, true},
		{"no SPIFFE ID", []string{"https://cart.shop/"}, false, true},
		{"the first of two", []string{want.String(), named("pay").String()}, false, false},
		{"the second of two", []string{named("pay").String(), want.String()}, false, true},
		{"another, in dedicated mode", []string{named("pay").String()}, true, false},
	} {
		t.Run(tt.name+" [2.2]", func(t *testing.T) {
			c := &Client{config: Config{Dedicated: tt.dedicated}}
			leaf := root.sign(t, workload(t, tt.uris...), newKey(t))
			_, err := c.parse(want, newKey(t), []string{encode(leaf), encode(root.cert)})
			if errors.Is(err, ErrOtherIdentity) != tt.bad {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestRefreshAt(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct{ notBefore, notAfter, want time.Duration }{
		{0, 24 * time.Hour, 12 * time.Hour},
		{-2 * time.Minute, 24 * time.Hour, 11*time.Hour + 59*time.Minute},
		{-time.Hour, time.Minute, -29*time.Minute - 30*time.Second},
		{time.Hour, 0, 0}, // it ends before it begins
	} {
		c := &Certificate{Leaf: &x509.Certificate{NotBefore: at.Add(tt.notBefore), NotAfter: at.Add(tt.notAfter)}}
		if got := c.RefreshAt().Sub(at); got != tt.want {
			t.Errorf("[2.4] from %v to %v: %v, want %v", tt.notBefore, tt.notAfter, got, tt.want)
		}
	}
}

// What ztunnel accepts and its peers do not: each case is a reply that is read
// without an error.
func TestPeers(t *testing.T) {
	root, other := newIssuer(t, "root", nil), newIssuer(t, "other root", nil)
	upper := newIssuer(t, "upper", root)
	lower := newIssuer(t, "lower", upper)
	id := named("cart")
	path := []*x509.Certificate{lower.cert, upper.cert}
	all := []*x509.Certificate{root.cert}
	hour := func(from time.Duration) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(from+time.Hour)
		}
	}
	purposes := func(p ...x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = p }
	}
	for _, tt := range []struct {
		name  string
		edit  func(*x509.Certificate)
		chain []*x509.Certificate
		roots []*x509.Certificate
		want  string // is in the error, if there should be one
	}{
		{"a good one", nil, path, all, ""},
		{"with two roots", nil, path, []*x509.Certificate{other.cert, root.cert}, ""},
		{"with the root in the path", nil, append(path[:2:2], root.cert), all, ""},
		{"without one issuer", nil, path[:1], all, "does not lead to a root"},
		{"without any", nil, nil, all, "does not lead to a root"},
		{"in the wrong order", nil, []*x509.Certificate{upper.cert, lower.cert}, all, "not signed by the next one"},
		{"with a foreign root", nil, path, []*x509.Certificate{other.cert}, "does not lead to a root"},
		{"with no roots", nil, path, nil, "does not lead to a root"},
		{"expired", hour(-2 * time.Hour), path, all, "expired"},
		{"of the future", hour(time.Hour), path, all, "not yet valid"},
		{"for servers only", purposes(x509.ExtKeyUsageServerAuth), path, all, "not for both purposes"},
		{"for clients only", purposes(x509.ExtKeyUsageClientAuth), path, all, "not for both purposes"},
		{"for any purpose", purposes(x509.ExtKeyUsageAny), path, all, "not for both purposes"},
		{"for no purpose", purposes(), path, all, "not for both purposes"},
		{"that may not sign", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyAgreement }, path, all, "may not sign"},
		{"that is a CA", func(c *x509.Certificate) { c.IsCA = true }, path, all, "is a CA"},
		{"with a second URI", func(c *x509.Certificate) { c.URIs = append(c.URIs, c.URIs[0]) }, path, all, "2 URIs"},
		{"for another", func(c *x509.Certificate) { c.URIs = workload(t, named("pay").String()).URIs }, path, all, "want spiffe://cluster.local/ns/shop/sa/cart"},
		{"with no critical name", uncritical(t, id), path, all, "not critical"},
	} {
		t.Run(tt.name+" [2.3]", func(t *testing.T) {
			template := workload(t, id.String())
			if tt.edit != nil {
				tt.edit(template)
			}
			key := newKey(t)
			c := &Certificate{Identity: id, Key: key, Leaf: lower.sign(t, template, key), Chain: tt.chain, Roots: tt.roots}
			err := c.Verify(c.Roots, time.Now())
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("judged %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("by an issuer for clients only [2.3]", func(t *testing.T) {
		limited := &issuer{key: newKey(t)}
		limited.cert = root.sign(t, &x509.Certificate{
			Subject: pkix.Name{CommonName: "limited"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}, limited.key)
		c := &Certificate{Identity: id, Leaf: limited.sign(t, workload(t, id.String()), newKey(t)), Chain: []*x509.Certificate{limited.cert}}
		if err := c.Verify(all, time.Now()); err == nil || !strings.Contains(err.Error(), "incompatible key usage") {
			t.Errorf("judged %v", err)
		}
	})
	t.Run("for another key [2.3]", func(t *testing.T) {
		c := &Certificate{Identity: id, Key: newKey(t), Leaf: lower.sign(t, workload(t, id.String()), newKey(t)), Chain: path}
		if err := c.Verify(all, time.Now()); err == nil || !strings.Contains(err.Error(), "another key") {
			t.Errorf("judged %v", err)
		}
	})
}

// uncritical has the leaf name its identity in an extension that may be ignored.
func uncritical(t *testing.T, id Identity) func(*x509.Certificate) {
	t.Helper()
	return func(c *x509.Certificate) {
		names, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: tagURI, Bytes: []byte(id.String())}})
		if err != nil {
			t.Fatal(err)
		}
		c.URIs, c.ExtraExtensions = nil, []pkix.Extension{{Id: oidSAN(), Value: names}}
	}
}

func TestHandshake(t *testing.T) {
	ours, theirs := newIssuer(t, "ours", nil), newIssuer(t, "theirs", nil)
	make := func(account string, by *issuer, edit func(*Certificate)) *Certificate {
		key := newKey(t)
		id := named(account)
		c := &Certificate{Identity: id, Key: key, Leaf: by.sign(t, workload(t, id.String()), key), Roots: []*x509.Certificate{ours.cert}}
		if edit != nil {
			edit(c)
		}
		return c
	}
	for _, tt := range []struct {
		name           string
		client, server *Certificate
		want           string
	}{
		{"two of one authority", make("a", ours, nil), make("b", ours, nil), ""},
		{"a server of another", make("a", ours, nil), make("b", theirs, nil), "does not lead to a root"},
		{"a client of another", make("a", theirs, nil), make("b", ours, nil), "does not lead to a root"},
		{"a server with fewer roots", make("a", ours, nil), make("b", ours, func(c *Certificate) { c.Roots = nil }), "does not lead to a root"},
		{"a client with the wrong key", make("a", ours, func(c *Certificate) { c.Key = newKey(t) }), make("b", ours, nil), "invalid signature"},
	} {
		t.Run(tt.name+" [2.5]", func(t *testing.T) {
			err := Handshake(t.Context(), tt.client, tt.server)
			if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
