package token_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/k8s/token"
)

// reviewed is what the API server says of the token of wantCaller.
func reviewed() authenticationv1.TokenReviewStatus {
	extra := func(value string) authenticationv1.ExtraValue { return authenticationv1.ExtraValue{value} }
	return authenticationv1.TokenReviewStatus{
		Authenticated: true,
		Audiences:     []string{"istio-ca"},
		User: authenticationv1.UserInfo{
			Username: "system:serviceaccount:istio-system:ztunnel",
			UID:      "sa-uid",
			Groups:   []string{"system:serviceaccounts"},
			Extra: map[string]authenticationv1.ExtraValue{
				"authentication.kubernetes.io/pod-name":      extra("ztunnel-x7k2p"),
				"authentication.kubernetes.io/pod-uid":       extra("pod-uid"),
				"authentication.kubernetes.io/node-name":     extra("node-1"),
				"authentication.kubernetes.io/node-uid":      extra("node-uid"),
				"authentication.kubernetes.io/credential-id": extra("JTI=" + wantCaller.TokenID),
			},
		},
	}
}

// say lets the API server say that of every token from now on.
func (a *api) say(status authenticationv1.TokenReviewStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.verdict = func(string) (authenticationv1.TokenReviewStatus, error) { return status, nil }
}

// TestReviews has what the API server may say of a token whose key it does not
// tell.
func TestReviews(t *testing.T) {
	type status = authenticationv1.TokenReviewStatus
	extra := func(key string, values ...string) func(*status) {
		return func(s *status) { s.User.Extra["authentication.kubernetes.io/"+key] = values }
	}
	without := func(key string) func(*status) {
		return func(s *status) { delete(s.User.Extra, "authentication.kubernetes.io/"+key) }
	}
	for _, tt := range []struct {
		name   string
		change func(*status)
		want   authz.Reason
	}{
		{"it is good", func(*status) {}, ""},
		{"it is not", func(s *status) { s.Authenticated = false }, authz.ReviewRefused},
		{"it is not, and nothing else", func(s *status) { *s = status{Error: "invalid bearer token"} }, authz.ReviewRefused},
		{"TOK-2: no audience", func(s *status) { s.Audiences = nil }, authz.ReviewRefused},
		{"TOK-2: another audience", func(s *status) { s.Audiences = []string{"other"} }, authz.ReviewRefused},
		{"TOK-1: the API server's audience", func(s *status) { s.Audiences = []string{issuer} }, authz.ReviewRefused},
		{"TOK-2: ours and another audience", func(s *status) { s.Audiences = []string{"other", "istio-ca"} }, ""},
		{"another account", func(s *status) { s.User.Username = "system:serviceaccount:istio-system:istiod" }, authz.ReviewRefused},
		{"no account", func(s *status) { s.User.Username = "" }, authz.ReviewRefused},
		{"another account UID", func(s *status) { s.User.UID = "sa-uid-2" }, authz.ReviewRefused},
		{"TOK-4: another pod UID", extra("pod-uid", "pod-uid-1"), authz.ReviewRefused},
		{"TOK-4: no pod UID", without("pod-uid"), authz.ReviewRefused},
		{"TOK-4: no extra", func(s *status) { s.User.Extra = nil }, authz.ReviewRefused},
		{"an empty pod UID", extra("pod-uid", ""), authz.ReviewRefused},
		{"two pod UIDs", extra("pod-uid", "pod-uid", "pod-uid"), authz.ReviewRefused},
		{"another pod", extra("pod-name", "ztunnel-y"), authz.ReviewRefused},
		{"another node", extra("node-name", "node-2"), authz.ReviewRefused},
		{"no node", without("node-name"), authz.ReviewRefused},
		{"another node UID", extra("node-uid", "node-uid-2"), authz.ReviewRefused},
		{"another token ID", extra("credential-id", "JTI=other"), authz.ReviewRefused},
		{"no token ID", without("credential-id"), authz.ReviewRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(rsaSigner())
			s := reviewed()
			tt.change(&s)
			a.say(s)
			v := a.verifier(t, at(noon), a.reviewing)
			text := ztunnel(noon, p256Signer()).String()
			for range 2 { // asked, and remembered
				if tt.want == "" {
					wantOK(t, v, text)
				} else {
					wantReason(t, v, text, tt.want)
				}
			}
			if _, reviews := a.counts(); reviews != 1 {
				t.Errorf("%d reviews", reviews)
			}
		})
	}
}

// TestReviewOfLess has tokens without what newer API servers add.
func TestReviewOfLess(t *testing.T) {
	a := newAPI(rsaSigner())
	d := ztunnel(noon, p256Signer())
	delete(d.claims, "jti")
	delete(d.kubernetes(), "node")
	s := reviewed()
	a.say(s)
	wantReason(t, a.verifier(t, at(noon), a.reviewing), d.String(), authz.ReviewRefused)
	for _, key := range []string{"node-name", "node-uid", "credential-id"} {
		delete(s.User.Extra, "authentication.kubernetes.io/"+key)
	}
	if caller, err := verify(t, a.verifier(t, at(noon), a.reviewing), d.String()); err != nil || caller.Node != "" {
		t.Errorf("got %+v, %v", caller, err)
	}
}

// TestWhenReviewsAreAskedFor has the state of the keys, the token, and who
// decides.
func TestWhenReviewsAreAskedFor(t *testing.T) {
	noExp := ztunnel(noon, p256Signer())
	delete(noExp.claims, "exp")
	for _, tt := range []struct {
		name    string
		token   *draft
		keys    []signer
		down    bool // the keys cannot be read
		review  bool // reviews are configured
		want    authz.Reason
		reviews int
	}{
		{"known key, reviews off", ztunnel(noon, rsaSigner()), []signer{rsaSigner()}, false, false, "", 0},
		{"known key, reviews on", ztunnel(noon, rsaSigner()), []signer{rsaSigner()}, false, true, "", 0},
		{"unknown key, reviews off", ztunnel(noon, p256Signer()), []signer{rsaSigner()}, false, false, authz.UnknownKey, 0},
		{"unknown key, reviews on", ztunnel(noon, p256Signer()), []signer{rsaSigner()}, false, true, "", 1},
		{"unreadable key, reviews on", ztunnel(noon, rsaShort()), []signer{rsaShort(), rsaSigner()}, false, true, "", 1},
		{"no keys to be had, reviews off", ztunnel(noon, rsaSigner()), nil, true, false, authz.APITrouble, 0},
		{"no keys to be had, reviews on", ztunnel(noon, rsaSigner()), nil, true, true, "", 1},
		{"malformed, reviews on", noExp, nil, true, true, authz.BadToken, 0},
		{"bad signature, reviews on", &draft{ztunnel(noon, rsaSigner()).header, ztunnel(noon, rsaSigner()).claims, rsaOther()},
			[]signer{rsaSigner()}, false, true, authz.BadSignature, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(tt.keys...)
			a.say(reviewed())
			v := a.verifier(t, at(noon), func(c *token.Config) {
				if tt.review {
					c.Review = a.review
				}
				if tt.down {
					c.FetchKeys = func(context.Context) ([]byte, error) { return nil, errDown }
				}
			})
			if tt.want == "" {
				wantOK(t, v, tt.token.String())
			} else {
				wantReason(t, v, tt.token.String(), tt.want)
			}
			if _, reviews := a.counts(); reviews != tt.reviews {
				t.Errorf("%d reviews, want %d", reviews, tt.reviews)
			}
			if err := v.Ready(); (err == nil) != (!tt.down || tt.review) && tt.want != authz.BadToken {
				t.Errorf("readiness: %v", err)
			}
		})
	}
}

// TOK-3: a cluster that scales up, at the defaults: 600 tokens that are
// all to be reviewed, in 5 s and at once, by an API server that takes 2 ms.
func TestTOK3(t *testing.T) {
	for _, within := range []time.Duration{0, 5 * time.Second} {
		t.Run(within.String(), func(t *testing.T) {
			a := newAPI(rsaSigner())
			a.latency = 2 * time.Millisecond
			a.say(reviewed())
			inTime(t, a, func(t *testing.T, v *token.Verifier) {
				began := time.Now()
				var wg sync.WaitGroup
				for i := range 600 {
					d := ztunnel(began, p256Signer())
					d.claims["nonce"] = i
					wg.Go(func() { wantOK(t, v, d.String()) })
					time.Sleep(within / 600)
				}
				wg.Wait()
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("it took %v", took)
				}
				if readings, reviews := a.counts(); reviews != 600 || readings > 2 {
					t.Errorf("%d reviews, %d readings", reviews, readings)
				}
			}, a.reviewing)
		})
	}
}

func TestReviewBudget(t *testing.T) {
	a := newAPI(rsaSigner())
	a.say(reviewed())
	inTime(t, a, func(t *testing.T, v *token.Verifier) {
		next := 0
		fresh := func() string {
			d := ztunnel(time.Now(), p256Signer())
			d.claims["nonce"] = next
			next++
			return d.String()
		}
		first := fresh()
		wantOK(t, v, first)
		wantOK(t, v, fresh())
		wantReason(t, v, fresh(), authz.NoCapacity)
		wantOK(t, v, first)                                     // needs none
		wantOK(t, v, ztunnel(time.Now(), rsaSigner()).String()) // nor does this
		time.Sleep(time.Second)
		wantOK(t, v, fresh())
		wantReason(t, v, fresh(), authz.NoCapacity)
		if s := v.Status(); s.ReviewsAccepted != 3 || s.ReviewsOverBudget != 2 {
			t.Errorf("%+v", s)
		}
	}, a.reviewing, func(c *token.Config) { c.ReviewRate, c.ReviewBurst = 1, 2 })
}

func TestReviewTrouble(t *testing.T) {
	a := newAPI(rsaSigner())
	text := ztunnel(noon, p256Signer()).String()
	a.verdict = func(token string) (authenticationv1.TokenReviewStatus, error) {
		return authenticationv1.TokenReviewStatus{}, fmt.Errorf("the server could not review %s", token)
	}
	v := a.verifier(t, at(noon), a.reviewing)
	wantReason(t, v, text, authz.APITrouble)
	wantReason(t, v, text, authz.APITrouble)
	a.say(authenticationv1.TokenReviewStatus{Error: "I was given " + text})
	wantReason(t, v, text, authz.ReviewRefused)
	if _, reviews := a.counts(); reviews != 3 { // "cannot tell" is not remembered
		t.Errorf("%d reviews", reviews)
	}
}

func TestReviewsOfOneTokenAreShared(t *testing.T) {
	a := newAPI(rsaSigner())
	a.latency = time.Second
	a.say(reviewed())
	inTime(t, a, func(t *testing.T, v *token.Verifier) {
		time.Sleep(time.Second)
		text := ztunnel(time.Now(), p256Signer()).String()
		// The first is gone before the review is back; the others get it.
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		caller, err := v.Verify(ctx, []string{"Bearer " + text}, nil)
		checkRefusal(t, caller, err, authz.DeadlinePassed)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { wantOK(t, v, text) })
		}
		wg.Wait()
		if _, reviews := a.counts(); reviews != 1 {
			t.Errorf("%d reviews", reviews)
		}
	}, a.reviewing, func(c *token.Config) { c.KeyRefresh, c.MinKeyRefresh = time.Hour, time.Hour })
}

func TestAReviewThatHangs(t *testing.T) {
	a := newAPI(rsaSigner())
	a.say(reviewed())
	inTime(t, a, func(t *testing.T, v *token.Verifier) {
		a.mu.Lock()
		a.latency = time.Hour
		a.mu.Unlock()
		began := time.Now()
		wantReason(t, v, ztunnel(began, p256Signer()).String(), authz.APITrouble)
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("waited %v", waited)
		}
	}, a.reviewing)
}

// TOK-5: no verdict outlives the token, or 10 s.
func TestTOK5(t *testing.T) {
	a := newAPI(rsaSigner())
	a.say(reviewed())
	inTime(t, a, func(t *testing.T, v *token.Verifier) {
		for _, s := range []signer{rsaSigner(), p256Signer()} { // verified, and reviewed
			d := ztunnel(time.Now(), s)
			d.claims["exp"] = time.Now().Unix() + 3
			text := d.String()
			wantOK(t, v, text)
			time.Sleep(2 * time.Second)
			wantOK(t, v, text)
			time.Sleep(2 * time.Second)
			wantReason(t, v, text, authz.ExpiredToken)
		}

		text := ztunnel(time.Now(), p256Signer()).String()
		wantOK(t, v, text)
		a.say(authenticationv1.TokenReviewStatus{Error: "service account token has been invalidated"}) // the pod was deleted
		time.Sleep(9 * time.Second)
		wantOK(t, v, text)
		time.Sleep(time.Second)
		wantReason(t, v, text, authz.ReviewRefused)

		// "No" is remembered as long.
		a.say(reviewed())
		time.Sleep(9 * time.Second)
		wantReason(t, v, text, authz.ReviewRefused)
		time.Sleep(time.Second)
		wantOK(t, v, text)
		if _, reviews := a.counts(); reviews != 4 {
			t.Errorf("%d reviews", reviews)
		}
	}, a.reviewing)
}

// TestStaleKeysAreReviewed checks that the API server's word is good when the
// keys are too old to be, for a token that was verified before too.
func TestStaleKeysAreReviewed(t *testing.T) {
	a := newAPI(rsaSigner())
	a.say(reviewed())
	keys := a.fetchKeys
	var down atomic.Bool
	inTime(t, a, func(t *testing.T, v *token.Verifier) {
		text := ztunnel(time.Now(), rsaSigner()).String()
		wantOK(t, v, text)
		down.Store(true)
		time.Sleep(2 * time.Hour)
		wantOK(t, v, text)
		if _, reviews := a.counts(); reviews != 1 {
			t.Errorf("%d reviews", reviews)
		}
	}, a.reviewing, func(c *token.Config) {
		c.FetchKeys = func(ctx context.Context) ([]byte, error) {
			if down.Load() {
				return nil, errors.New("forbidden")
			}
			return keys(ctx)
		}
	})
}
