package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/bailiwick-ca/bailiwick/k8s/token"
)

// keepRunning prints commands to try, and waits until ctx is done or the server
// has ended. What it wrote for the commands is removed then, tokens and all.
func (d *demonstration) keepRunning(ctx context.Context, ended <-chan struct{}, w io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "bailiwick-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := d.invite(dir, w); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-ended:
		if ctx.Err() != nil {
			return nil // it was told to end, and was quicker than we
		}
		return errors.New("the demonstration's server has ended by itself; start it again")
	}
}

// invite writes what one needs to ask the demonstration's server into dir, and
// prints commands to try.
func (d *demonstration) invite(dir string, w io.Writer) error {
	files := map[string][]byte{
		"root-cert.pem": []byte(d.authority.BundlePEM()),
		"cluster.yaml":  demoCluster,
		"config.yaml":   []byte(demoConfig),
	}
	for i := range d.objects.pods {
		p := &d.objects.pods[i]
		c, err := d.objects.caller(p.Namespace + "/" + p.Name)
		if err != nil {
			return err
		}
		text, err := d.signer.token(c, token.DefaultAudience, time.Now(), 12*time.Hour)
		if err != nil {
			return err
		}
		files[p.Name+".token"] = []byte(text)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, strings.NewReplacer("PROGRAM", shellWord(d.program), "DIR", shellWord(dir), "ADDRESS", shellWord(d.address())).Replace(`
Serving on ADDRESS until interrupted. In another terminal:

  # the agent of node-a asks for an identity that runs on its node
  PROGRAM request --address ADDRESS --server-name localhost --root DIR/root-cert.pem \
    --token DIR/ztunnel-a.token --identity spiffe://cluster.local/ns/shop/sa/cart

  # ...and for one that does not
  PROGRAM request --address ADDRESS --server-name localhost --root DIR/root-cert.pem \
    --token DIR/ztunnel-a.token --identity spiffe://cluster.local/ns/shop/sa/pay

  # why not?
  PROGRAM explain --config DIR/config.yaml --objects DIR/cluster.yaml \
    --node node-a --identity spiffe://cluster.local/ns/shop/sa/pay

DIR has a token of each pod. It is removed in the end.
`))
	if err != nil {
		return fmt.Errorf("printing what to try: %w", err)
	}
	return nil
}

// shellWord returns text so that a shell takes it for one word, and a terminal
// for nothing but text: what is not printable is escaped (POSIX.1-2024, Shell
// Command Language, Section 2.2.4).
func shellWord(text string) string {
	special := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+:@%,", r)
	}
	if text != "" && !strings.ContainsFunc(text, special) {
		return text
	}
	if printable(text) == text {
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '\'' || c == '\\' {
			fmt.Fprintf(&b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return "$'" + b.String() + "'"
}
