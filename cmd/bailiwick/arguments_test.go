package main

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// TestTokensAreNotRepeated gives a token where the name of a file is wanted, as
// --token "$(kubectl create token ...)" does, and wants it in nothing that is
// printed.
func TestTokensAreNotRepeated(t *testing.T) {
	part := base64.RawURLEncoding.EncodeToString
	short := part([]byte(`{"alg":"RS256"}`)) + "." + part([]byte(`{"sub":"x"}`)) + "." + part([]byte("signature"))
	long := part([]byte(`{"alg":"RS256"}`)) + "." + part(bytes.Repeat([]byte("x"), 5000)) + "." + part([]byte("signature"))
	unsigned := part([]byte(`{"alg":"none"}`)) + "." + part([]byte(`{}`)) + "."
	for _, tt := range []struct {
		args []string // TOKEN stands for it
		want string
	}{
		{[]string{"request", "--root", "r", "--token", "TOKEN"}, "--token has a token itself"},
		{[]string{"request", "--root", "r", "--token=TOKEN"}, "--token has a token itself"},
		{[]string{"request", "--root", "r", "--token", "Bearer TOKEN"}, "--token has a token itself"},
		{[]string{"request", "--root", "TOKEN"}, "--root has a token itself"},
		{[]string{"request", "--out", "TOKEN"}, "--out has a token itself"},
		{[]string{"request", "--address", "TOKEN"}, "--address has a token itself"},
		{[]string{"request", "--life", "TOKEN"}, "--life has a token itself"},
		{[]string{"request", "TOKEN"}, "an argument has a token itself"},
		{[]string{"request", "--TOKEN=x"}, "an argument has a token itself"},
		{[]string{"explain", "--objects", "TOKEN", "--node", "n"}, "--objects has a token itself"},
		{[]string{"explain", "--kubeconfig", "TOKEN", "--node", "n"}, "--kubeconfig has a token itself"},
		{[]string{"explain", "--config", "TOKEN", "--node", "n"}, "--config has a token itself"},
		{[]string{"check", "--material", "TOKEN"}, "--material has a token itself"},
		{[]string{"version", "-oTOKEN"}, "an argument has a token itself"},
		{[]string{"serve", "--material", "TOKEN"}, "--material has a token itself"},
		{[]string{"TOKEN"}, "an argument has a token itself"},
	} {
		for _, token := range []string{short, long, unsigned} {
			var args []string
			for _, arg := range tt.args {
				args = append(args, strings.ReplaceAll(arg, "TOKEN", token))
			}
			for _, more := range [][]string{nil, {"-o", "json"}} {
				var out bytes.Buffer
				code := run(t.Context(), append(args, more...), &out, &out)
				if code != exitUsage || !strings.Contains(out.String(), tt.want) || !strings.Contains(out.String(), "write it into a file") {
					t.Errorf("%q: exit code %d, and no %q in %.300q", tt.args, code, tt.want, out.String())
				}
				if strings.Contains(out.String(), "eyJ") {
					t.Errorf("%q prints the token: %.100q", tt.args, out.String())
				}
			}
		}
	}
}

// TestControlCharactersInArguments wants them refused, and not repeated.
func TestControlCharactersInArguments(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"explain", "--objects", "o", "--node", "x\ny"}, "bailiwick: --node has the control character U+000A in it\n"},
		{[]string{"explain", "--objects", "o", "--node=x\ry"}, "bailiwick: --node has the control character U+000D in it\n"},
		{[]string{"request", "--root", "\x1b[31mX"}, "bailiwick: --root has the control character U+001B in it\n"},
		{[]string{"request", "--root", "x\u009b31mX"}, "bailiwick: --root has the control character U+009B in it\n"},
		{[]string{"check", "a\nb"}, "bailiwick: an argument has the control character U+000A in it\n"},
		{[]string{"request", "--x\ny=1"}, "bailiwick: an argument has the control character U+000A in it\n"},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), tt.args, &out, &out); code != exitUsage || out.String() != tt.want {
			t.Errorf("%q: exit code %d and %q, want %q", tt.args, code, out.String(), tt.want)
		}
	}
}

// hostileCluster is a cluster whose names are not such as an API server takes.
// NODE and POD stand for them.
const hostileCluster = `
- {apiVersion: v1, kind: Pod, metadata: {namespace: istio-system, name: "POD", uid: p}, spec: {serviceAccountName: ztunnel, nodeName: "NODE"}, status: {phase: PHASE}}
- {apiVersion: v1, kind: Node, metadata: {name: "NODE", uid: u}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {namespace: istio-system, name: ztunnel, uid: a}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {namespace: shop, name: pay, uid: b}}
`

// TestNamesAreQuoted wants the commands that explain prints to take each name
// for one word, and nothing that it prints to move the cursor.
func TestNamesAreQuoted(t *testing.T) {
	for _, tt := range []struct {
		node, pod, phase string // as in YAML
		args             []string
		want             string
	}{
		{`a;id\x1b[31mX`, "zt", "Running", []string{"--as", "istio-system/zt", "--identity", "spiffe://cluster.local/ns/shop/sa/pay"}, `--field-selector spec.nodeName=$'a;id\033[31mX'` + "\n"},
		{`a b`, "zt", "Running", []string{"--node", "a b", "--identity", "spiffe://cluster.local/ns/shop/sa/pay"}, "--field-selector spec.nodeName='a b'\n"},
		{`n\nm\u009b`, "zt", "Running", []string{"--as", "istio-system/zt", "--node", "x"}, `which is on node "n\nm\u009b", and`},
		{"n", `z;id\x1b`, "Failed", []string{"--node", "n"}, `kubectl -n istio-system get pod $'z;id\033' -o wide` + "\n"},
	} {
		path := filepath.Join(t.TempDir(), "cluster.yaml")
		names := strings.NewReplacer("NODE", tt.node, "POD", tt.pod, "PHASE", tt.phase)
		if err := os.WriteFile(path, []byte("apiVersion: v1\nkind: List\nitems:"+names.Replace(hostileCluster)), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, more := range [][]string{nil, {"-o", "json"}} {
			var out bytes.Buffer
			run(t.Context(), append(append([]string{"explain", "--objects", path}, tt.args...), more...), &out, &out)
			if more == nil && !strings.Contains(out.String(), tt.want) {
				t.Errorf("no %q in\n%q", tt.want, out.String())
			}
			if i := strings.IndexFunc(out.String(), func(r rune) bool { return unicode.IsControl(r) && r != '\n' }); i >= 0 {
				t.Errorf("%q %q is printed raw: %q", tt.args, out.String()[i], out.String())
			}
		}
	}
}
