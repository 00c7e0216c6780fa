package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/bailiwick-ca/bailiwick/e2e/ztunnel"
)

func TestUsage(t *testing.T) {
	for line, want := range map[string]string{
		"":                           "--root is missing",
		"--root r":                   "--token is missing",
		"--root r --token t more":    `"more" is one word too many`,
		"--root r --token t --ttl x": "ttl",
		"--root r --token a --token b --token c --identities x --identities y": "2 times --identities for 3 nodes",
		"--root /no/such/file --token t --identity i":                          "reading the roots",
		"--root /dev/null --token t":                                           "no identities",
		"--root /dev/null --token t --identity cart":                           "is not spiffe://",
	} {
		if err := run(t.Context(), strings.Fields(line), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
}

func TestNodesHaveTheirIdentities(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two := file("1", "# one\nspiffe://d/ns/a/sa/b\n\nspiffe://d/ns/a/sa/c\n"), file("2", "spiffe://d/ns/a/sa/d")
	for _, tt := range []struct {
		args string
		want map[string]string
	}{
		{"--token t --identities " + one, map[string]string{"t": "b c"}},
		{"--token t --token u --identities " + one, map[string]string{"t": "b c", "u": "b c"}},
		{"--token t --token u --identities " + one + " --identities " + two + " --identity spiffe://d/ns/a/sa/e", map[string]string{"t": "b c e", "u": "d e"}},
	} {
		o, err := parse(strings.Fields("--root /dev/null " + tt.args))
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := o.nodes()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, n := range nodes {
			var accounts []string
			for _, id := range n.identities {
				accounts = append(accounts, id.ServiceAccount)
			}
			got[n.config.TokenFile] = strings.Join(accounts, " ")
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.args, diff)
		}
	}
}

// A counter does something after some lines.
type counter struct {
	bytes.Buffer

	lines int
	then  func()
}

func (c *counter) Write(p []byte) (int, error) {
	if c.lines--; c.lines == 0 {
		c.then()
	}
	return c.Buffer.Write(p)
}

// A server that knows no CreateCertificate refuses everything.
func TestRefusals(t *testing.T) {
	addr, root := refuseAll(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := &counter{lines: 2, then: interrupt}
	err := run(ctx, []string{
		"--ca", addr, "--root", root, "--token", token,
		"--identity", "spiffe://d/ns/a/sa/b", "--identity", "spiffe://d/ns/a/sa/c", "--duration", "1h",
	}, out)
	if err == nil || err.Error() != "2 identities have no good certificate" {
		t.Errorf("run = %v", err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("printed\n%s", out.String())
	}
	for _, text := range lines[:2] {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil || l.State != ztunnel.Unavailable || !strings.Contains(l.Error, "Unimplemented") {
			t.Errorf("%v: %s", err, text)
		}
	}
	var got summary
	if err := json.Unmarshal([]byte(lines[2]), &got); err != nil || got.P99 < got.P50 || got.P50 <= 0 {
		t.Errorf("%v: %s", err, lines[2])
	}
	got.P50, got.P99 = 0, 0
	if diff := cmp.Diff(summary{Fetches: 2, Missing: 2, Errors: map[string]int{"Unimplemented": 2}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRecord(t *testing.T) {
	var out bytes.Buffer
	r := newRecord(&out)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	// No peer accepts an empty certificate.
	empty := &ztunnel.Certificate{Leaf: &x509.Certificate{SerialNumber: big.NewInt(7)}}
	for i := range 100 {
		e := ztunnel.Event{Began: begin, Ended: begin.Add(time.Duration(i+1) * time.Millisecond), Renewal: i >= 60}
		if e.Certificate = empty; i < 10 {
			e.Certificate, e.Failure = nil, errors.New("no")
		}
		r.add("n1", e)
	}
	r.drop(3)
	err := r.end(0)
	if want := "90 times peers would not have accepted a certificate"; fmt.Sprint(err) != want {
		t.Errorf("end = %v", err)
	}
	want := summary{Fetches: 100, Renewals: 40, Errors: map[string]int{"Unknown": 10}, Refused: 90, Dropped: 3, P50: 50, P99: 99}
	if diff := cmp.Diff(want, r.sum); diff != "" {
		t.Error(diff)
	}
}

// refuseAll starts a server, and returns the file that has its root.
func refuseAll(t *testing.T) (addr, root string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	root = filepath.Join(t.TempDir(), "root-cert.pem")
	if err := os.WriteFile(root, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key})))
	go s.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(s.Stop)
	return l.Addr().String(), root
}
