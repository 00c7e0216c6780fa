package token_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/k8s/token"
)

var errDown = errors.New("connection refused")

// inTime runs a test in a bubble with its own clock, and a verifier that runs.
func inTime(t *testing.T, a *api, test func(t *testing.T, v *token.Verifier), change ...func(*token.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v := a.verifier(t, change...)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go v.Run(ctx)
		synctest.Wait()
		test(t, v)
	})
}

func TestKeyRotation(t *testing.T) {
	before, after := rsaSigner(), p256Signer()
	a := newAPI(before)
	inTime(t, a, func(t *testing.T, v *token.Verifier) {
		old := ztunnel(time.Now(), before).String()
		wantOK(t, v, old)

		a.serve(before, after)
		time.Sleep(20 * time.Second)
		wantOK(t, v, ztunnel(time.Now(), after).String()) // found at once
		wantOK(t, v, old)                                 // remembered

		a.serve(after)
		wantOK(t, v, old) // until the next reading
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		wantReason(t, v, old, authz.UnknownKey) // though it was remembered
		wantReason(t, v, ztunnel(time.Now().Add(-time.Hour), before).String(), authz.UnknownKey)
		wantOK(t, v, ztunnel(time.Now(), after).String())
		if s := v.Status(); s.Keys != 1 || s.Remembered != 2 {
			t.Errorf("%d keys, %d tokens remembered", s.Keys, s.Remembered)
		}
	})
}

// TestReplacedKey has another key under the ID of the first.
func TestReplacedKey(t *testing.T) {
	a := newAPI(rsaSigner())
	inTime(t, a, func(t *testing.T, v *token.Verifier) {
		old := ztunnel(time.Now(), rsaSigner()).String()
		wantOK(t, v, old)
		replaced := rsaOther()
		replaced.kid = rsaSigner().kid
		a.serve(replaced)
		time.Sleep(5*time.Minute + time.Second)
		wantReason(t, v, old, authz.BadSignature)
		wantOK(t, v, ztunnel(time.Now(), replaced).String())
	})
}

func TestKeysThatCannotBeReadAgain(t *testing.T) {
	a := newAPI(rsaSigner())
	inTime(t, a, func(t *testing.T, v *token.Verifier) {
		began := time.Now()
		remembered, fresh := ztunnel(began, rsaSigner()).String(), ztunnel(began.Add(-time.Second), rsaSigner()).String()
		wantOK(t, v, remembered)
		a.fail(errDown)

		time.Sleep(time.Hour)
		wantOK(t, v, remembered)
		wantOK(t, v, ztunnel(began.Add(-2*time.Second), rsaSigner()).String())
		wantReason(t, v, ztunnel(began, p256Signer()).String(), authz.APITrouble)

		time.Sleep(time.Second)
		wantReason(t, v, remembered, authz.KeysTooOld)
		wantReason(t, v, fresh, authz.KeysTooOld)
		wantReason(t, v, ztunnel(began, p256Signer()).String(), authz.KeysTooOld)
		expired := ztunnel(began.Add(-12*time.Hour), rsaSigner()).String()
		wantReason(t, v, expired, authz.ExpiredToken) // which needs no key
		if v.Ready() != nil {
			t.Error("it is not ready any more")
		}

		a.serve(rsaSigner())
		time.Sleep(5 * time.Minute)
		wantOK(t, v, remembered)
		wantOK(t, v, fresh)
	})
}

func TestBeforeTheFirstKeys(t *testing.T) {
	a := newAPI(rsaSigner())
	a.fail(errDown)
	inTime(t, a, func(t *testing.T, v *token.Verifier) {
		text := ztunnel(time.Now(), rsaSigner()).String()
		wantReason(t, v, text, authz.APITrouble)
		if err := v.Ready(); !errors.Is(err, errDown) {
			t.Errorf("without keys it is ready, or does not say why not: %v", err)
		}
		a.serve(rsaSigner())
		wantReason(t, v, text, authz.APITrouble) // for 10 s
		time.Sleep(11 * time.Second)
		wantOK(t, v, text)
		if err := v.Ready(); err != nil {
			t.Error(err)
		}
	})
}

// TestReadyWithReviews checks that a reading that failed is enough if the API
// server can be asked about tokens, and that one is needed.
func TestReadyWithReviews(t *testing.T) {
	for _, reviewing := range []bool{false, true} {
		a := newAPI(rsaSigner())
		a.fail(errDown)
		v := a.verifier(t, at(noon), func(c *token.Config) {
			if reviewing {
				c.Review = a.review
			}
		})
		if v.Ready() == nil {
			t.Error("it is ready before the first reading")
		}
		_, _ = verify(t, v, ztunnel(noon, rsaSigner()).String())
		if err := v.Ready(); (err == nil) != reviewing {
			t.Errorf("after a reading that failed: %v (reviews: %v)", err, reviewing)
		}
	}
}

// TestUnknownKey checks that "no" is said only on an answer of the API server
// that must have had the key.
func TestUnknownKey(t *testing.T) {
	a := newAPI(rsaSigner())
	inTime(t, a, func(t *testing.T, v *token.Verifier) {
		time.Sleep(8 * time.Second)
		// The keys were read 8 s ago, and may not be read again yet.
		wantReason(t, v, ztunnel(time.Now(), p256Signer()).String(), authz.NoCapacity)
		wantReason(t, v, ztunnel(time.Now().Add(-67*time.Second), p256Signer()).String(), authz.NoCapacity)
		wantReason(t, v, ztunnel(time.Now().Add(-69*time.Second), p256Signer()).String(), authz.UnknownKey)
		time.Sleep(3 * time.Second)
		wantReason(t, v, ztunnel(time.Now(), p256Signer()).String(), authz.UnknownKey)
		if readings, _ := a.counts(); readings != 2 {
			t.Errorf("the keys were read %d times", readings)
		}
	})
}

// TestUnknownKeyFlood has 400 tokens a second with keys that nobody knows.
func TestUnknownKeyFlood(t *testing.T) {
	a := newAPI(rsaSigner())
	a.latency = 20 * time.Millisecond
	inTime(t, a, func(t *testing.T, v *token.Verifier) {
		time.Sleep(time.Second)
		unknown := ztunnel(time.Now().Add(-time.Hour), p256Other()).String()
		good := ztunnel(time.Now(), rsaSigner()).String()
		var wg sync.WaitGroup
		for range 30 * 20 {
			for range 20 {
				wg.Go(func() { wantReason(t, v, unknown, authz.UnknownKey) })
			}
			wantOK(t, v, good)
			time.Sleep(50 * time.Millisecond)
		}
		wg.Wait()
		if readings, _ := a.counts(); readings != 4 { // at 0, 10, 20 and 30 s
			t.Errorf("the keys were read %d times in 31 s", readings)
		}
	})
}

func TestNobodyWaitsForKeysBeyondTheDeadline(t *testing.T) {
	a := newAPI(rsaSigner())
	synctest.Test(t, func(t *testing.T) {
		a.latency = time.Hour
		v := a.verifier(t, a.reviewing)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		caller, err := v.Verify(ctx, []string{"Bearer " + ztunnel(began, rsaSigner()).String()}, nil)
		checkRefusal(t, caller, err, authz.DeadlinePassed)
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("waited %v", waited)
		}
		synctest.Wait()
		if _, reviews := a.counts(); reviews != 0 {
			t.Error("a review was asked for that nobody waits for")
		}
		// Another shares what the first began, and outlasts it.
		a.mu.Lock()
		a.latency = 0
		a.mu.Unlock()
		a.say(reviewed())
		wantOK(t, v, ztunnel(began, rsaSigner()).String())
		if readings, _ := a.counts(); readings != 1 || time.Since(began) != 5*time.Second {
			t.Errorf("the keys were read %d times in %v", readings, time.Since(began))
		}
	})
}

// TestOneReadingAtATime has readings that take longer than the time between two.
func TestOneReadingAtATime(t *testing.T) {
	a := newAPI(rsaSigner())
	a.latency = 4 * time.Second
	inTime(t, a, func(t *testing.T, v *token.Verifier) {
		for range 3 {
			time.Sleep(time.Second)
			if readings, _ := a.counts(); readings != 1 {
				t.Errorf("the keys were read %d times", readings)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			caller, err := v.Verify(ctx, []string{"Bearer " + ztunnel(time.Now(), rsaSigner()).String()}, nil)
			checkRefusal(t, caller, err, authz.DeadlinePassed)
			cancel()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		wantOK(t, v, ztunnel(time.Now(), rsaSigner()).String())
	}, func(c *token.Config) { c.MinKeyRefresh = time.Millisecond })
}

// TestReadingAgainAfterFailures checks when the keys are read.
func TestReadingAgainAfterFailures(t *testing.T) {
	a := newAPI(rsaSigner())
	a.fail(errDown)
	inTime(t, a, func(t *testing.T, _ *token.Verifier) {
		for _, step := range []struct {
			after time.Duration
			reads int
		}{
			{9 * time.Second, 1}, {2 * time.Second, 2}, {20 * time.Second, 3}, {40 * time.Second, 4}, {80 * time.Second, 5},
			{160 * time.Second, 6}, {290 * time.Second, 6}, {20 * time.Second, 7},
		} {
			time.Sleep(step.after)
			synctest.Wait()
			if readings, _ := a.counts(); readings != step.reads {
				t.Errorf("after %v more: read %d times, want %d", step.after, readings, step.reads)
			}
		}
	})
}

func TestKeySets(t *testing.T) {
	good, short := rsaSigner().jwk(), rsaShort().jwk()
	twin := with(rsaOther().jwk(), "kid", rsaSigner().kid)
	p256, p384 := p256Signer().jwk(), p384Signer().jwk()
	for _, tt := range []struct {
		name string
		keys []object
		want authz.Reason
	}{
		{"one key", []object{good}, ""},
		{"without use and alg", []object{{"kty": "RSA", "kid": good["kid"], "n": good["n"], "e": good["e"]}}, ""},
		{"the same key twice", []object{good, good}, ""},
		{"a key that is odd beside it", []object{{"kty": "oct", "kid": "x", "k": "AAAA"}, good}, ""},
		{"a key that is none beside it", []object{nil, good}, ""},
		{"a short key beside it", []object{short, good}, ""},
		{"a key of another type under its ID", []object{good, {"kty": "oct", "kid": good["kid"]}}, ""},
		{"another key under its ID", []object{good, twin, p256}, authz.UnknownKey},
		{"another key under its ID, and it again", []object{twin, good, good, p256}, authz.UnknownKey},
		{"a key without an ID", []object{with(good, "kid", ""), p256}, authz.UnknownKey},
		{"a key for encryption", []object{with(good, "use", "enc"), p256}, authz.UnknownKey},
		{"a key for another algorithm", []object{with(good, "alg", "PS256"), p256}, authz.UnknownKey},
		{"an even exponent", []object{with(good, "e", "AQAA"), p256}, authz.UnknownKey},
		{"the exponent 1", []object{with(good, "e", "AQ"), p256}, authz.UnknownKey},
		{"an exponent that is too large", []object{with(good, "e", "AQAAAAAB"), p256}, authz.UnknownKey},
		{"a modulus that is no base64url", []object{with(good, "n", "!"), p256}, authz.UnknownKey},
		{"a modulus of 8 193 bits", []object{with(good, "n", b64(append([]byte{1}, make([]byte, 1024)...))), p256}, authz.UnknownKey},
		{"a member of another kind", []object{with(good, "kid", 1), p256}, authz.UnknownKey},

		{"only a short key", []object{with(short, "kid", "rsa")}, authz.APITrouble},
		{"no key", []object{}, authz.APITrouble},
		{"null", nil, authz.APITrouble},
		{"a point that is not on the curve", []object{with(p256, "x", p256["y"])}, authz.APITrouble},
		{"a point of another curve", []object{with(p256, "crv", "P-384")}, authz.APITrouble},
		{"coordinates of another length", []object{with(p384, "x", p256["x"])}, authz.APITrouble},
		{"a curve that Kubernetes does not have", []object{with(p256, "crv", "secp256k1")}, authz.APITrouble},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &api{keys: toJSON(object{"keys": tt.keys})}
			v := a.verifier(t, at(noon))
			if text := ztunnel(noon, rsaSigner()).String(); tt.want == "" {
				wantOK(t, v, text)
			} else {
				wantReason(t, v, text, tt.want)
			}
		})
	}
	for name, answer := range map[string][]byte{
		"nothing":        nil,
		"no JSON":        []byte("<html>"),
		"an array":       []byte("[]"),
		"no keys":        []byte("{}"),
		"a Status":       []byte(`{"kind":"Status","code":500}`),
		"1 MiB and more": append(keySet(rsaSigner()), bytes.Repeat([]byte(" "), 1<<20+1-len(keySet(rsaSigner())))...),
		"2 MiB":          append(keySet(rsaSigner()), bytes.Repeat([]byte(" "), 2<<20)...),
		"cut in halves":  keySet(rsaSigner())[:200],
	} {
		t.Run(name, func(t *testing.T) {
			v := (&api{keys: answer}).verifier(t, at(noon))
			wantReason(t, v, ztunnel(noon, rsaSigner()).String(), authz.APITrouble)
		})
	}
}

// TestTheLargestKeySetIsRead has a set of exactly 1 MiB.
func TestTheLargestKeySetIsRead(t *testing.T) {
	set := keySet(rsaSigner())
	a := &api{keys: append(set, bytes.Repeat([]byte(" "), 1<<20-len(set))...)}
	wantOK(t, a.verifier(t, at(noon)), ztunnel(noon, rsaSigner()).String())
}

// TestKeysLeftOut has what is said of keys beside one that is good.
func TestKeysLeftOut(t *testing.T) {
	good, p256, p384 := rsaSigner().jwk(), p256Signer().jwk(), p384Signer().jwk()
	name := func(bytes int) string { return strings.Repeat("k", bytes) }
	for _, tt := range []struct {
		name string
		keys []object
		says string // "" if they are good
	}{
		{"no ID", []object{with(good, "kid", "")}, `key 0: its ID is missing or too long`},
		{"an ID of 1 024 bytes", []object{with(good, "kid", name(1024))}, ""},
		{"an ID of 1 025 bytes", []object{with(good, "kid", name(1025))}, `key 0: its ID is missing or too long`},
		{"two keys with one ID", []object{good, with(rsaOther().jwk(), "kid", rsaSigner().kid)}, `key 1: there is another key with the ID \"rsa\"`},
		{"another use", []object{with(good, "use", "enc")}, `key 0: \"rsa\": its use is \"enc\"`},
		{"another algorithm", []object{with(good, "alg", "RS512")}, `key 0: \"rsa\": it is for \"RS512\"`},
		{"another type", []object{with(good, "kty", "OKP")}, `key 0: \"rsa\": its type is \"OKP\"`},
		{"no JWK", []object{with(good, "kid", 1)}, `key 0: not a JSON Web Key`},
		{"an exponent that is no base64url", []object{with(good, "e", "!")}, `key 0: \"rsa\": exponent: `},
		{"the exponent 1", []object{with(good, "e", "AQ")}, `key 0: \"rsa\": its exponent is not a sane one`},
		{"the exponent 3", []object{with(good, "e", "Aw")}, ""},
		{"an even exponent", []object{with(good, "e", "BA")}, `key 0: \"rsa\": its exponent is not a sane one`},
		{"an exponent of 31 bits", []object{with(good, "e", "f____w")}, ""},
		{"an exponent of 32 bits", []object{with(good, "e", "gAAAAQ")}, `key 0: \"rsa\": its exponent is not a sane one`},
		{"a modulus of 2 047 bits", []object{with(good, "n", b64(modulus(2047)))}, `it has 2047 bits, not 2048 to 8192`},
		{"a modulus of 2 048 bits", []object{with(good, "n", b64(modulus(2048)))}, ""},
		{"a modulus of 8 192 bits", []object{with(good, "n", b64(modulus(8192)))}, ""},
		{"a modulus of 8 193 bits", []object{with(good, "n", b64(modulus(8193)))}, `it has 8193 bits, not 2048 to 8192`},
		{"another curve", []object{with(p384, "crv", "P-224")}, `its curve is \"P-224\"`},
		{"an x that is no base64url", []object{with(p384, "x", "!")}, `its coordinates are malformed`},
		{"a y that is no base64url", []object{with(p384, "y", "!")}, `its coordinates are malformed`},
		{"an x of another length", []object{with(p384, "x", p256["x"])}, `its coordinates are malformed`},
		{"a y of another length", []object{with(p384, "y", p256["y"])}, `its coordinates are malformed`},
		{"a point that is not on the curve", []object{with(p384, "x", p384["y"])}, `parsing the point: `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			a := &api{keys: toJSON(object{"keys": append(tt.keys, p256)})}
			v := a.verifier(t, at(noon), func(c *token.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
			wantOK(t, v, ztunnel(noon, p256Signer()).String())
			keys := 1
			if tt.says == "" {
				keys += len(tt.keys)
			}
			if n := strings.Count(log.String(), "token key left out"); n != len(tt.keys)+1-keys && tt.name != "two keys with one ID" || !strings.Contains(log.String(), tt.says) {
				t.Errorf("the log does not say %q once:\n%s", tt.says, log.String())
			}
			if n := v.Status().Keys; n != keys {
				t.Errorf("%d keys, want %d", n, keys)
			}
		})
	}
}

// modulus returns a number of that many bits, which need not be a product of
// two primes.
func modulus(bits int) []byte {
	n := make([]byte, (bits+7)/8)
	n[0] = 1 << ((bits - 1) % 8)
	n[len(n)-1] |= 1
	return n
}

// TestABadAnswerKeepsTheKeys checks that damage is not taken for a withdrawal.
func TestABadAnswerKeepsTheKeys(t *testing.T) {
	for _, answer := range []string{"", "{}", `{"keys":[]}`, `{"keys":[{"kty":"oct","kid":"rsa"}]}`} {
		a := newAPI(rsaSigner())
		inTime(t, a, func(t *testing.T, v *token.Verifier) {
			a.mu.Lock()
			a.keys = []byte(answer)
			a.mu.Unlock()
			time.Sleep(6 * time.Minute)
			wantOK(t, v, ztunnel(time.Now(), rsaSigner()).String())
			if s := v.Status(); s.FailedKeyReadings == 0 || s.KeysAge < 6*time.Minute {
				t.Errorf("%s: %+v", answer, s)
			}
			time.Sleep(time.Hour)
			wantReason(t, v, ztunnel(time.Now(), rsaSigner()).String(), authz.KeysTooOld)
		})
	}
}

// TestKeysInTheLog checks that an odd key is spoken of when it appears, not
// every 5 min, and that what changes is said.
func TestKeysInTheLog(t *testing.T) {
	var log bytes.Buffer
	a := &api{keys: toJSON(object{"keys": []any{rsaSigner().jwk(), rsaShort().jwk()}})}
	inTime(t, a, func(t *testing.T, _ *token.Verifier) {
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "\n") != 2 ||
			!strings.Contains(got, `level=WARN msg="token key left out" reason="key 1: \"rsa-short\": it has 1024 bits, not 2048 to 8192"`) ||
			!strings.Contains(got, `level=INFO msg="token keys read" keys=[rsa]`) {
			t.Errorf("the log is\n%s", got)
		}
	}, func(c *token.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
}
