package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"
)

// realReply returns the elements of what a server answers to a node agent.
func realReply(f *testing.F) []string {
	f.Helper()
	d, err := newDemonstration("127.0.0.1:0", io.Discard, discard())
	if err != nil {
		f.Fatal(err)
	}
	ctx, stop := context.WithCancel(f.Context())
	served := make(chan error, 1)
	go func() { served <- d.service.run(ctx) }()
	r, err := replier(f, d)(cartIdentity)
	stop()
	if err := <-served; err != nil {
		f.Fatal(err)
	}
	if err != nil {
		f.Fatal(err)
	}
	var elements []string
	for _, cert := range r.chain {
		elements = append(elements, string(encodeAll([]*x509.Certificate{cert})))
	}
	return append(elements, string(encodeAll(r.roots)))
}

// FuzzReply reads what a server may answer, which need not be one of ours. The
// elements are separated by a zero byte. The key is that of the first certificate,
// or another one, for which no reply is.
func FuzzReply(f *testing.F) {
	const separator = "\x00"
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	elements := realReply(f)
	f.Add(strings.Join(elements, separator), true)
	f.Add(strings.Join(elements, separator), false)
	f.Add(strings.Join(elements, ""), true)
	f.Add(strings.Join(append(elements, ""), separator), true)
	f.Add(elements[0], true)
	f.Add(elements[0]+separator+"x"+elements[0]+"x", true)
	f.Add("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"+separator, true)
	f.Fuzz(func(t *testing.T, text string, ours bool) {
		elements := strings.Split(text, separator)
		key := other
		if first, err := parseElement(elements[0]); err == nil && ours {
			if public, ok := first[0].PublicKey.(*ecdsa.PublicKey); ok {
				key = &ecdsa.PrivateKey{PublicKey: *public}
			}
		}
		r, err := parseReply(key, elements)
		if err != nil {
			return
		}
		if !ours || len(r.chain) != len(elements)-1 || len(r.roots) == 0 {
			t.Fatalf("%q is accepted, ours: %v, with %d certificates and %d roots", text, ours, len(r.chain), len(r.roots))
		}
		for i, certs := range append([][]*x509.Certificate{r.roots}, r.chain) {
			again, err := parseElement(string(encodeAll(certs)))
			if err != nil || len(again) != len(certs) || !bytes.Equal(again[0].Raw, certs[0].Raw) {
				t.Errorf("what is written of %d cannot be read again: %v", i, err)
			}
		}
		_ = r.verify(time.Now()) // which may say anything, but must return
		var s sheet
		r.report().text(&s)
		if strings.ContainsFunc(s.String(), func(r rune) bool { return unicode.IsControl(r) && r != '\n' }) {
			t.Errorf("what is printed moves the cursor: %q", s.String())
		}
	})
}
