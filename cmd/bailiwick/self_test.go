package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"k8s.io/client-go/rest"
)

// ownTokenOf returns a token of an account for the API server.
func ownTokenOf(t *testing.T, namespace, name string) string {
	t.Helper()
	text, err := mustSigner(t).token(authz.Caller{ServiceAccount: authz.ServiceAccount{Namespace: namespace, Name: name}, ServiceAccountUID: "u"}, demoIssuer, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestOwnAccount(t *testing.T) {
	mesh := authz.ServiceAccount{Namespace: "mesh", Name: "bailiwick"}
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	nowhere := filepath.Join(t.TempDir(), "no-token")
	for _, tt := range []struct {
		name            string
		bearer, mounted string
		want            authz.ServiceAccount
		warning         string
	}{
		{"no token", "", nowhere, authz.ServiceAccount{}, ""},
		{"the token that we authenticate with", ownTokenOf(t, "mesh", "bailiwick"), nowhere, mesh, ""},
		{"the token that is mounted", "", write(ownTokenOf(t, "mesh", "bailiwick") + "\n"), mesh, ""},
		{"a token that cannot be read", "", t.TempDir(), authz.ServiceAccount{}, "reading our own token"},
		{"a token that is none", "secret-word", nowhere, authz.ServiceAccount{}, "three segments"},
		{"a person's token", mustSigner(t).raw(t, `{"sub":"alice"}`), nowhere, authz.ServiceAccount{}, `that of \"alice\"`},
		{"a token with a subject twice", mustSigner(t).raw(t, `{"sub":"system:serviceaccount:a:b","sub":"system:serviceaccount:c:d"}`), nowhere, authz.ServiceAccount{}, "twice"},
		{"a subject without a name", mustSigner(t).raw(t, `{"sub":"system:serviceaccount:mesh"}`), nowhere, authz.ServiceAccount{}, "not a service account"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			k := &kube{bearer: tt.bearer, mounted: tt.mounted}
			if got := k.ownAccount(slog.New(slog.NewTextHandler(&log, nil))); got != tt.want {
				t.Errorf("account %v, want %v", got, tt.want)
			}
			text := strings.ReplaceAll(log.String(), `\\`, `\`)
			if tt.warning == "" && text != "" || !strings.Contains(text, tt.warning) {
				t.Errorf("logged %q, want %q", text, tt.warning)
			}
			if strings.Contains(text, "secret-word") {
				t.Errorf("the token is logged: %s", text)
			}
		})
	}
}

// silent is an API server that never answers.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestStartUpDoesNotHang starts where the API server never says which issuer it
// has: with our own token, and without.
func TestStartUpDoesNotHang(t *testing.T) {
	own := ownTokenOf(t, "mesh", "bailiwick")
	for _, tt := range []struct {
		bearer string
		want   []string
		said   []string // in the error or the log
	}{
		{own, []string{demoIssuer}, []string{"deadline exceeded", "are refused until a restart", "set issuers"}},
		{"", nil, []string{"deadline exceeded", "set issuers"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, err := parseConfig(nil)
			if err != nil {
				t.Fatal(err)
			}
			k, err := connect(&rest.Config{Host: "http://silent.invalid", Transport: silent{}, BearerToken: tt.bearer}, c)
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			start := time.Now()
			got, err := k.issuers(t.Context(), nil, slog.New(slog.NewTextHandler(&log, nil)))
			if !slices.Equal(got, tt.want) || (err == nil) != (tt.want != nil) {
				t.Errorf("issuers %q, %v; want %q", got, err, tt.want)
			}
			if took := time.Since(start); took > 11*time.Second {
				t.Errorf("it took %v", took)
			}
			text := log.String()
			if err != nil {
				text += err.Error()
			}
			for _, want := range tt.said {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in %s", want, text)
				}
			}
		})
	}
}

// TestIssuersWithoutTrouble warns of nothing where the API server answers, or is
// not asked.
func TestIssuersWithoutTrouble(t *testing.T) {
	api := newFakeAPI(t, mustSigner(t))
	k, err := connect(&rest.Config{Host: api.URL, BearerToken: ownTokenOf(t, "mesh", "bailiwick")}, defaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, configured := range [][]string{nil, {"https://other.example"}} {
		want := configured
		if want == nil {
			want = []string{demoIssuer}
		}
		var log bytes.Buffer
		got, err := k.issuers(t.Context(), configured, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil || !slices.Equal(got, want) || log.Len() > 0 {
			t.Errorf("issuers %q, %v, and logged %q; want %q", got, err, log.String(), want)
		}
	}
}

func TestNotReady(t *testing.T) {
	now := time.Now()
	c := defaultConfig()
	authority, err := selfMade(now, c.profile())
	if err != nil {
		t.Fatal(err)
	}
	cl := clusterOf(t, newFakeAPI(t, mustSigner(t)))
	least := time.Duration(c.MinLeafLife)
	for _, tt := range []struct {
		name string
		now  time.Time
		want string
	}{
		{"a signer that is well, before the cluster is known", now, "not-synced"},
		{"just enough left on the signing path", authority.NotAfter().Add(-least), "not-synced"},
		{"too little left on the signing path", authority.NotAfter().Add(-least + time.Second), "issuer-expiring"},
		{"a clock behind the signing path", authority.Issuer().NotBefore.Add(-time.Hour), "issuer-not-yet-valid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := notReady(cl, authority, tt.now); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("notReady = %v, want %s", err, tt.want)
			}
		})
	}
}

func TestUserConfig(t *testing.T) {
	cluster := writeKubeconfig(t, "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://c.example'}}]\n")
	rest := writeKubeconfig(t, "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n")
	t.Setenv("KUBECONFIG", cluster+string(os.PathListSeparator)+rest)
	rc, err := userConfig("")
	if err != nil {
		t.Fatal(err)
	}
	if rc.Host != "https://c.example" || rc.BearerToken != "t" {
		t.Errorf("found %s", rc)
	}
	if _, err := serverConfig(""); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("the server read KUBECONFIG: %v", err)
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "no"))
	if _, err := userConfig(""); err == nil || !strings.Contains(err.Error(), "KUBECONFIG") {
		t.Errorf("userConfig = %v", err)
	}
}
