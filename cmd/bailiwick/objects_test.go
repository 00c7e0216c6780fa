package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
)

// discard is a log for what no test reads.
func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestParseObjects(t *testing.T) {
	const list = `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1, uid: un}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {namespace: shop, name: cart, uid: ua}}
- {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: cart-1, uid: up}, spec: {serviceAccountName: cart, nodeName: n1}}
`
	for _, tt := range []struct{ name, text string }{
		{"what kubectl prints", list},
		{"with Windows line ends", strings.ReplaceAll(list, "\n", "\r\n")},
		{"three documents", "---\n" + strings.ReplaceAll(strings.ReplaceAll(list[strings.Index(list, "- {"):], "\n- ", "\n---\n"), "- {apiVersion: v1, kind: Node", "{apiVersion: v1, kind: Node")},
		{"three documents with comments behind the markers", strings.ReplaceAll(strings.ReplaceAll(list[strings.Index(list, "- {"):], "\n- ", "\n---  # next\n"), "- {apiVersion: v1, kind: Node", "--- # first\n{apiVersion: v1, kind: Node")},
		{"JSON", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","uid":"un"}},{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"namespace":"shop","name":"cart","uid":"ua"}},{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"cart-1","uid":"up"},"spec":{"serviceAccountName":"cart","nodeName":"n1"}}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := parseObjects([]byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			got, err := o.caller("shop/cart-1")
			want := authz.Caller{
				ServiceAccount: authz.ServiceAccount{Namespace: "shop", Name: "cart"}, ServiceAccountUID: "ua",
				Pod: "cart-1", PodUID: "up", Node: "n1", NodeUID: "un",
			}
			if err != nil || got != want {
				t.Errorf("caller = %+v, %v; want %+v", got, err, want)
			}
		})
	}
}

func TestParseObjectsRefuses(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "there is no pod in it; make such a file with: kubectl get pods"},
		{"text", "hello", "not an object of Kubernetes: found string"},
		{"broken YAML", "a: [", "document 1"},
		{"another kind", "apiVersion: v1\nkind: Secret", `kind is "Secret"`},
		{"another version", "apiVersion: v2\nkind: Pod", `apiVersion is "v2"`},
		{"a key twice", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, name: b}", `key "name" already set`},
		{"a key twice in JSON", `{"apiVersion":"v1","kind":"List","kind":"Pod"}`, `key "kind" already set`},
		{"a broken second document", "apiVersion: v1\nkind: List\n---\n}", "document 2, from line 3"},
		{"a pod whose spec is a list", "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, spec: []}]", "item 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := parseObjects([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("parseObjects = %v, want %q", err, tt.want)
			}
		})
	}
}

func FuzzObjects(f *testing.F) {
	f.Add(demoCluster)
	f.Add([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a, uid: b}"))
	f.Add([]byte("{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[null]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := parseObjects(data)
		if err != nil {
			return
		}
		if len(o.pods) == 0 {
			t.Errorf("parseObjects(%q) accepted a cluster without pods", data)
		}
		if inv, err := o.inventory(time.Now); err == nil && inv == nil {
			t.Error("no inventory and no error")
		}
	})
}
