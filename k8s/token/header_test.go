package token_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/k8s/token"
)

func TestAuthorization(t *testing.T) {
	good := ztunnel(noon, rsaSigner()).String()
	fill := func(n int) string { return "Bearer " + strings.Repeat("x", n-len("Bearer ")) }
	for _, tt := range []struct {
		name   string
		values []string
		want   authz.Reason
	}{
		{"one bearer token", []string{"Bearer " + good}, ""},
		{"small letters", []string{"bearer " + good}, ""},
		{"capital letters", []string{"BEARER " + good}, ""},
		{"none", nil, authz.NoToken},
		{"two", []string{"Bearer " + good, "Bearer " + good}, authz.NoToken},
		{"an empty one", []string{""}, authz.NoToken},
		{"only spaces", []string{"      "}, authz.NoToken},
		{"only the scheme", []string{"Bearer"}, authz.NoToken},
		{"the scheme and a space", []string{"Bearer "}, authz.NoToken},
		{"the scheme and spaces", []string{"Bearer      "}, authz.BadToken},
		{"two spaces", []string{"Bearer  " + good}, authz.BadToken},
		{"a tab", []string{"Bearer\t" + good}, authz.NoToken},
		{"a space before", []string{" Bearer " + good}, authz.NoToken},
		{"no scheme", []string{good}, authz.NoToken},
		{"another scheme", []string{"Basic " + good}, authz.NoToken},
		{"another scheme that begins alike", []string{"Bearers " + good}, authz.NoToken},
		{"two in one", []string{"Bearer " + good + ", Bearer " + good}, authz.BadToken},
		{"16 KiB", []string{fill(16 << 10)}, authz.BadToken},
		{"16 KiB and 1", []string{fill(16<<10 + 1)}, authz.BadToken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := newAPI(rsaSigner()).verifier(t, at(noon))
			caller, err := v.Verify(t.Context(), tt.values, nil)
			if tt.want == "" {
				if err != nil || caller != wantCaller {
					t.Errorf("got %+v, %v", caller, err)
				}
				return
			}
			checkRefusal(t, caller, err, tt.want)
			checkNoSecret(t, err, good)
		})
	}
}

func TestTheSizeIsLookedAtFirst(t *testing.T) {
	v := newAPI(rsaSigner()).verifier(t, at(noon))
	good := ztunnel(noon, rsaSigner())
	good.claims["padding"] = strings.Repeat("x", 16<<10)
	_, err := verify(t, v, good.String())
	if err == nil || !strings.Contains(err.Error(), "more than 16384") {
		t.Errorf("got %v", err)
	}
	// One that is just short enough is looked at, and has no three segments.
	_, err = verify(t, v, strings.Repeat("x", 16<<10-len("Bearer ")))
	if err == nil || !strings.Contains(err.Error(), "three segments") {
		t.Errorf("of 16384 bytes: got %v", err)
	}
}

// TestClusterID checks that the clusterid of a request decides nothing, unless
// there are two.
func TestClusterID(t *testing.T) {
	v := newAPI(rsaSigner()).verifier(t, at(noon), func(c *token.Config) { c.ClusterID = "Kubernetes" })
	authorization := []string{"Bearer " + ztunnel(noon, rsaSigner()).String()}
	for _, values := range [][]string{nil, {"Kubernetes"}, {"Kubernetes"}, {"kubernetes"}, {""}, {strings.Repeat("x", 1<<20)}} {
		if caller, err := v.Verify(t.Context(), authorization, values); err != nil || caller != wantCaller {
			t.Errorf("%.20q: got %+v, %v", values, caller, err)
		}
	}
	caller, err := v.Verify(t.Context(), authorization, []string{"Kubernetes", "Kubernetes"})
	checkRefusal(t, caller, err, authz.UnknownCluster)
	if s := v.Status(); s.ClusterAbsent != 1 || s.ClusterKnown != 2 || s.ClusterOther != 3 {
		t.Errorf("counted %d, %d and %d", s.ClusterAbsent, s.ClusterKnown, s.ClusterOther)
	}
}

// TOK-6: values that are made to be expensive, 500 of each at a time.
func TestTOK6(t *testing.T) {
	const atOnce, each = 500, 4 << 10 // bytes that may be allocated for one value
	a := newAPI(rsaSigner())
	v := a.verifier(t, at(noon), a.reviewing)
	for name, value := range map[string]string{
		"1 MiB of dots":        "Bearer " + strings.Repeat(".", 1<<20),
		"1 MiB of one letter":  "Bearer " + strings.Repeat("a", 1<<20),
		"16 KiB of dots":       "Bearer " + strings.Repeat(".", 16<<10-7),
		"16 KiB of one letter": "Bearer " + strings.Repeat("a", 16<<10-7),
		"nothing":              "",
		"spaces":               strings.Repeat(" ", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			values := []string{value}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var wg sync.WaitGroup
			for range atOnce {
				wg.Go(func() {
					if _, err := v.Verify(t.Context(), values, nil); err == nil {
						t.Error("accepted")
					}
				})
			}
			wg.Wait()
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > atOnce*each {
				t.Errorf("%d bytes were allocated for each", used/atOnce)
			}
		})
	}
	if readings, reviews := a.counts(); readings != 0 || reviews != 0 {
		t.Errorf("the API server was asked %d times for keys, and for %d reviews", readings, reviews)
	}
}

func TestConfig(t *testing.T) {
	fetch := newAPI().fetchKeys
	for name, c := range map[string]token.Config{
		"no issuer":             {FetchKeys: fetch},
		"an empty issuer":       {FetchKeys: fetch, Issuers: []string{""}},
		"an empty audience":     {FetchKeys: fetch, Issuers: []string{issuer}, Audiences: []string{""}},
		"no keys":               {Issuers: []string{issuer}},
		"a negative time":       {FetchKeys: fetch, Issuers: []string{issuer}, MaxTokenLife: -1},
		"a negative size":       {FetchKeys: fetch, Issuers: []string{issuer}, CacheSize: -1},
		"times that do not fit": {FetchKeys: fetch, Issuers: []string{issuer}, KeyRefresh: 7200e9},
	} {
		if v, err := token.New(c); err == nil || v != nil {
			t.Errorf("%s: got %v, %v", name, v, err)
		}
	}
	_, err := token.New(token.Config{CacheSize: -1})
	for _, want := range []string{"no issuer", "key set", "negative"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// TestConfigIsCopied changes what a verifier was made of.
func TestConfigIsCopied(t *testing.T) {
	issuers, audiences := []string{issuer}, []string{"istio-ca"}
	v := newAPI(rsaSigner()).verifier(t, at(noon), func(c *token.Config) { c.Issuers, c.Audiences = issuers, audiences })
	issuers[0], audiences[0] = "https://example.com", "vault"
	wantOK(t, v, ztunnel(noon, rsaSigner()).String())
}
