package token_test

import (
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/k8s/token"
)

// numbered returns tokens of the same pod that differ.
func numbered(n int, now time.Time, s signer) []string {
	texts := make([]string, n)
	for i := range texts {
		d := ztunnel(now, s)
		d.claims["nonce"] = i
		texts[i] = d.String()
	}
	return texts
}

// TestFullCaches checks that at its bound a cache forgets, and nothing is refused.
func TestFullCaches(t *testing.T) {
	a := newAPI(p256Signer())
	a.say(reviewed())
	v := a.verifier(t, at(noon), a.reviewing, func(c *token.Config) { c.CacheSize, c.VerdictCacheSize = 4, 4 })
	for _, s := range []signer{p256Signer(), p256Other()} { // verified, and reviewed
		for _, text := range numbered(20, noon, s) {
			wantOK(t, v, text)
			wantOK(t, v, text)
		}
	}
	if s := v.Status(); s.Remembered != 4 || s.Verdicts != 4 || s.Hits != 20 || s.ReviewsAccepted != 20 {
		t.Errorf("%+v", s)
	}
}

func TestExpiredTokensAreForgotten(t *testing.T) {
	a := newAPI(p256Signer())
	a.say(reviewed())
	inTime(t, a, func(t *testing.T, v *token.Verifier) {
		for _, s := range []signer{p256Signer(), p256Other()} {
			for _, text := range numbered(5, time.Now(), s) {
				wantOK(t, v, text)
			}
		}
		time.Sleep(11 * time.Hour)
		if s := v.Status(); s.Remembered != 5 {
			t.Errorf("%d remembered", s.Remembered)
		}
		time.Sleep(70 * time.Minute)
		if s := v.Status(); s.Remembered != 0 || s.Verdicts != 0 {
			t.Errorf("%d remembered", s.Remembered)
		}
	}, a.reviewing)
}

func TestVerifyingAtOnce(t *testing.T) {
	a := newAPI(p256Signer(), rsaSigner())
	v := a.verifier(t, at(noon), func(c *token.Config) { c.CacheSize = 8 })
	texts := append(numbered(8, noon, p256Signer()), numbered(8, noon, rsaSigner())...)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for j := range texts {
				wantOK(t, v, texts[(i+j)%len(texts)])
			}
		})
	}
	wg.Wait()
}

// TestNoAllocations checks that a token that was seen before costs no garbage.
func TestNoAllocations(t *testing.T) {
	v := newAPI(rsaSigner()).verifier(t, at(noon))
	authorization, clusterID := []string{"Bearer " + ztunnel(noon, rsaSigner()).String()}, []string{"Kubernetes"}
	n := testing.AllocsPerRun(100, func() {
		if _, err := v.Verify(t.Context(), authorization, clusterID); err != nil {
			t.Error(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}
