package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/k8s/token"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/tools/metrics"
)

// A longestWait is the longest time that a call was held up by client-go's own
// limiter.
type longestWait struct {
	mu   sync.Mutex
	wait time.Duration
}

// Observe implements client-go's LatencyMetric.
func (l *longestWait) Observe(_ context.Context, _ string, _ url.URL, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait = max(l.wait, wait)
}

// TestReviewsAreNotThrottled is [TOK-3]: a scale-up shows 600 tokens at once
// whose key the API server does not publish, and each of them needs a review. No
// setting of ours is changed, so that what is tested is what is shipped; with
// client-go's own limits, 5 calls a second and 10 at once, it takes two minutes.
func TestReviewsAreNotThrottled(t *testing.T) {
	const tokens = 600
	published, secret := mustSigner(t), mustSigner(t)
	api := newFakeAPI(t, published)
	byToken := make(map[string]authz.Caller)
	for i := range tokens {
		c := authz.Caller{
			ServiceAccount: authz.ServiceAccount{Namespace: "istio-system", Name: "ztunnel"}, ServiceAccountUID: "u",
			Pod: fmt.Sprintf("ztunnel-%d", i), PodUID: fmt.Sprintf("p%d", i), Node: fmt.Sprintf("n%d", i), NodeUID: fmt.Sprintf("nu%d", i),
		}
		text, err := secret.token(c, token.DefaultAudience, time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		byToken[text] = c
	}
	api.review = func(text string) authenticationv1.TokenReviewStatus {
		<-time.After(2 * time.Millisecond) // as fast as an API server is
		return accepted(byToken[text], tokenID(t, text))
	}
	limiter := &longestWait{}
	metrics.Register(metrics.RegisterOpts{RateLimiterLatency: limiter})

	cl := clusterOf(t, api)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for text, want := range byToken {
		wg.Go(func() {
			got, err := cl.tokens.Verify(ctx, []string{"Bearer " + text}, nil)
			got.TokenID = ""
			if err != nil || got != want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	wg.Wait()
	// A call that does not wait takes microseconds here, unless its goroutine
	// has to wait for the processor.
	if limiter.wait > time.Second {
		t.Errorf("client-go held up a review for %v", limiter.wait)
	}
	if s := cl.tokens.Status(); s.ReviewsAccepted != tokens {
		t.Errorf("%d reviews were accepted, %d failed, %d were over budget", s.ReviewsAccepted, s.ReviewsFailed, s.ReviewsOverBudget)
	}
}

// clusterOf connects to the API server as serve does, with the defaults.
func clusterOf(t *testing.T, api *fakeAPI) *cluster {
	t.Helper()
	c, err := parseConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	rc, err := serverConfig(api.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	k, err := connect(rc, c)
	if err != nil {
		t.Fatal(err)
	}
	cl, err := newCluster(t.Context(), c, k, discard())
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

func mustSigner(t *testing.T) *signer {
	t.Helper()
	s, err := newSigner()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tokenID returns the jti of a token.
func tokenID(t *testing.T, text string) string {
	t.Helper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(text, ".")[1])
	if err != nil {
		t.Error(err)
	}
	var claims struct {
		ID string `json:"jti"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Error(err)
	}
	return claims.ID
}
