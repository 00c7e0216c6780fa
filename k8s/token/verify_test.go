package token_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/k8s/token"
)

var noon = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// TestTokens has tokens that are good, or wrong in exactly one way.
func TestTokens(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(d *draft)
		want   authz.Reason // "" if the token is accepted
	}{
		{"the kubelet's token of a ztunnel pod", func(*draft) {}, ""},

		{"a header with typ", func(d *draft) { d.header["typ"] = "JWT" }, ""},
		{"another typ", func(d *draft) { d.header["typ"] = "at+jwt" }, authz.BadToken},
		{"a typ that is no string", func(d *draft) { d.header["typ"] = 1 }, authz.BadToken},
		{"crit", func(d *draft) { d.header["crit"] = []string{"exp"} }, authz.BadToken},
		{"a key in the header", func(d *draft) { d.header["jwk"] = d.signer.jwk() }, authz.BadToken},
		{"no kid", func(d *draft) { delete(d.header, "kid") }, authz.BadToken},
		{"an empty kid", func(d *draft) { d.header["kid"] = "" }, authz.BadToken},
		{"a kid of 1 024 bytes", func(d *draft) { d.header["kid"] = strings.Repeat("k", 1024) }, authz.UnknownKey},
		{"a kid of 1 025 bytes", func(d *draft) { d.header["kid"] = strings.Repeat("k", 1025) }, authz.BadToken},
		{"a kid that is no string", func(d *draft) { d.header["kid"] = []string{"rsa"} }, authz.BadToken},
		{"no alg", func(d *draft) { delete(d.header, "alg") }, authz.BadToken},
		{"alg none", func(d *draft) { d.header["alg"] = "none" }, authz.BadToken},
		{"alg HS256", func(d *draft) { d.header["alg"] = "HS256" }, authz.BadToken},
		{"alg RS384", func(d *draft) { d.header["alg"] = "RS384" }, authz.BadToken},
		{"alg PS256", func(d *draft) { d.header["alg"] = "PS256" }, authz.BadToken},
		{"alg in small letters", func(d *draft) { d.header["alg"] = "rs256" }, authz.BadToken},

		{"no iss", func(d *draft) { delete(d.claims, "iss") }, authz.BadToken},
		{"another issuer", func(d *draft) { d.claims["iss"] = "https://example.com" }, authz.UnknownIssuer},
		{"an issuer with a slash more", func(d *draft) { d.claims["iss"] = issuer + "/" }, authz.UnknownIssuer},
		{"a second configured issuer", func(d *draft) { d.claims["iss"] = "https://old.example" }, ""},

		{"one audience that is no array", func(d *draft) { d.claims["aud"] = "istio-ca" }, ""},
		{"TOK-1: ours among its audiences", func(d *draft) { d.claims["aud"] = []string{"vault", "istio-ca"} }, authz.WrongAudience},
		{"TOK-1: both of ours", func(d *draft) { d.claims["aud"] = []string{"istio-ca", "bailiwick"} }, ""},
		{"TOK-1: our second audience", func(d *draft) { d.claims["aud"] = []string{"bailiwick"} }, ""},
		{"TOK-1: the API server's audience", func(d *draft) { d.claims["aud"] = []string{issuer} }, authz.WrongAudience},
		{"TOK-1: an audience with a suffix", func(d *draft) { d.claims["aud"] = []string{"istio-ca/"} }, authz.WrongAudience},
		{"an empty audience", func(d *draft) { d.claims["aud"] = "" }, authz.WrongAudience},
		{"no aud", func(d *draft) { delete(d.claims, "aud") }, authz.BadToken},
		{"no audiences", func(d *draft) { d.claims["aud"] = []string{} }, authz.BadToken},
		{"aud null", func(d *draft) { d.claims["aud"] = nil }, authz.BadToken},
		{"an audience that is no string", func(d *draft) { d.claims["aud"] = []any{"istio-ca", 1} }, authz.BadToken},

		{"TOK-7: issued and valid in 20 s", func(d *draft) {
			d.claims["iat"], d.claims["nbf"] = noon.Unix()+20, noon.Unix()+20
		}, ""},
		{"issued in 60 s", func(d *draft) { d.claims["iat"] = noon.Unix() + 60 }, ""},
		{"issued in 61 s", func(d *draft) { d.claims["iat"] = noon.Unix() + 61 }, authz.EarlyToken},
		{"valid in 60 s", func(d *draft) { d.claims["nbf"] = noon.Unix() + 60 }, ""},
		{"valid in 61 s", func(d *draft) { d.claims["nbf"] = noon.Unix() + 61 }, authz.EarlyToken},
		{"expires in 1 s", func(d *draft) { d.claims["exp"] = noon.Unix() + 1 }, ""},
		{"expires now", func(d *draft) { d.claims["exp"] = noon.Unix() }, authz.ExpiredToken},
		{"TOK-7: expired 20 s ago", func(d *draft) { d.claims["exp"] = noon.Unix() - 20 }, authz.ExpiredToken},
		{"TOK-7: no exp", func(d *draft) { delete(d.claims, "exp") }, authz.BadToken},
		{"no iat", func(d *draft) { delete(d.claims, "iat") }, authz.BadToken},
		{"no nbf", func(d *draft) { delete(d.claims, "nbf") }, authz.BadToken},
		{"exp null", func(d *draft) { d.claims["exp"] = nil }, authz.BadToken},
		{"exp 0", func(d *draft) { d.claims["exp"] = 0 }, authz.BadToken},
		{"exp with a fraction", func(d *draft) { d.claims["exp"] = float64(noon.Unix()) + 100.5 }, authz.BadToken},
		{"exp as a string", func(d *draft) { d.claims["exp"] = "1999999999" }, authz.BadToken},
		{"exp beyond all time", func(d *draft) { d.claims["exp"] = json.Number("1e300") }, authz.BadToken},
		{"exp that overflows", func(d *draft) { d.claims["exp"] = json.Number("9223372036854775807") }, authz.BadToken},
		{"made to last 24 h", func(d *draft) { d.claims["exp"] = noon.Unix() + 24*3600 }, ""},
		{"made to last 24 h and 1 s", func(d *draft) { d.claims["exp"] = noon.Unix() + 24*3600 + 1 }, authz.BadToken},

		{"no sub", func(d *draft) { delete(d.claims, "sub") }, authz.BadToken},
		{"the sub of another account", func(d *draft) { d.claims["sub"] = "system:serviceaccount:istio-system:istiod" }, authz.BadToken},
		{"the sub of another namespace", func(d *draft) { d.claims["sub"] = "system:serviceaccount:default:ztunnel" }, authz.BadToken},
		{"the sub of a user", func(d *draft) { d.claims["sub"] = "istio-system:ztunnel" }, authz.BadToken},
		{"a sub with more", func(d *draft) { d.claims["sub"] = "system:serviceaccount:istio-system:ztunnel:x" }, authz.BadToken},
		{"no jti", func(d *draft) { delete(d.claims, "jti") }, "no jti"},
		{"a jti with a line break", func(d *draft) { d.claims["jti"] = "a\nb" }, authz.BadToken},
		{"a jti of 128 bytes", func(d *draft) { d.claims["jti"] = strings.Repeat("~", 128) }, "a long jti"},
		{"a jti of 129 bytes", func(d *draft) { d.claims["jti"] = strings.Repeat("j", 129) }, authz.BadToken},
		{"a claim that means nothing to us", func(d *draft) { d.claims["azp"] = "x" }, ""},

		{"no kubernetes.io", func(d *draft) { delete(d.claims, "kubernetes.io") }, authz.BadToken},
		{"a legacy token", func(d *draft) {
			delete(d.claims, "kubernetes.io")
			d.claims["kubernetes.io/serviceaccount/namespace"] = "istio-system"
			d.claims["kubernetes.io/serviceaccount/service-account.name"] = "ztunnel"
		}, authz.BadToken},
		{"kubernetes.io null", func(d *draft) { d.claims["kubernetes.io"] = nil }, authz.BadToken},
		{"no namespace", func(d *draft) { delete(d.kubernetes(), "namespace") }, authz.BadToken},
		{"a namespace with a dot", func(d *draft) {
			d.kubernetes()["namespace"] = "istio.system"
			d.claims["sub"] = "system:serviceaccount:istio.system:ztunnel"
		}, authz.BadToken},
		{"a namespace with a slash", func(d *draft) {
			d.kubernetes()["namespace"] = "istio-system/x"
			d.claims["sub"] = "system:serviceaccount:istio-system/x:ztunnel"
		}, authz.BadToken},
		{"no service account", func(d *draft) { delete(d.kubernetes(), "serviceaccount") }, authz.BadToken},
		{"an account without a UID", func(d *draft) { d.kubernetes()["serviceaccount"] = object{"name": "ztunnel"} }, authz.BadToken},
		{"an account with an empty UID", func(d *draft) {
			d.kubernetes()["serviceaccount"] = object{"name": "ztunnel", "uid": ""}
		}, authz.BadToken},
		{"an account whose name is none", func(d *draft) {
			d.kubernetes()["serviceaccount"] = object{"name": "Ztunnel", "uid": "sa-uid"}
			d.claims["sub"] = "system:serviceaccount:istio-system:Ztunnel"
		}, authz.BadToken},

		{"warnafter", func(d *draft) { d.kubernetes()["warnafter"] = noon.Unix() + 3607 }, ""},
		{"bound to nothing", func(d *draft) { delete(d.kubernetes(), "pod"); delete(d.kubernetes(), "node") }, authz.NotPodBound},
		{"bound to a node", func(d *draft) { delete(d.kubernetes(), "pod") }, authz.NotPodBound},
		{"bound to a secret", func(d *draft) {
			delete(d.kubernetes(), "pod")
			delete(d.kubernetes(), "node")
			d.kubernetes()["secret"] = object{"name": "s", "uid": "u"}
		}, authz.NotPodBound},
		{"bound to a secret too", func(d *draft) { d.kubernetes()["secret"] = object{"name": "s", "uid": "u"} }, authz.NotPodBound},
		{"bound to a webhook", func(d *draft) {
			d.kubernetes()["validatingwebhookconfiguration"] = object{"name": "w", "uid": "u"}
		}, authz.NotPodBound},
		{"bound to another webhook", func(d *draft) {
			d.kubernetes()["mutatingwebhookconfiguration"] = object{"name": "w", "uid": "u"}
		}, authz.NotPodBound},
		{"with attestations", func(d *draft) { d.kubernetes()["attestations"] = object{} }, authz.NotPodBound},
		{"bound to what we never heard of", func(d *draft) { d.kubernetes()["toaster"] = object{"name": "t"} }, authz.NotPodBound},
		{"a Pod with a capital letter", func(d *draft) { d.kubernetes()["Pod"] = object{"name": "p", "uid": "u"} }, authz.NotPodBound},
		{"a pod without a UID", func(d *draft) { d.kubernetes()["pod"] = object{"name": "ztunnel-x7k2p"} }, authz.BadToken},
		{"a pod without a name", func(d *draft) { d.kubernetes()["pod"] = object{"uid": "pod-uid"} }, authz.BadToken},
		{"a pod that is null", func(d *draft) { d.kubernetes()["pod"] = nil }, authz.BadToken},
		{"a pod with a namespace", func(d *draft) {
			d.kubernetes()["pod"] = object{"name": "ztunnel-x7k2p", "uid": "pod-uid", "namespace": "default"}
		}, authz.BadToken},
		{"a pod whose name is none", func(d *draft) { d.kubernetes()["pod"] = object{"name": "../x", "uid": "pod-uid"} }, authz.BadToken},
		{"a pod UID with a space", func(d *draft) {
			d.kubernetes()["pod"] = object{"name": "ztunnel-x7k2p", "uid": "pod uid"}
		}, authz.BadToken},
		{"no node", func(d *draft) { delete(d.kubernetes(), "node") }, "no node"},
		{"a node without a UID", func(d *draft) { d.kubernetes()["node"] = object{"name": "node-1"} }, "no node UID"},
		{"a node without a name", func(d *draft) { d.kubernetes()["node"] = object{"uid": "node-uid"} }, authz.BadToken},
		{"a node whose name is none", func(d *draft) { d.kubernetes()["node"] = object{"name": "node_1", "uid": "u"} }, authz.BadToken},

		{"a key that the cluster does not have", func(d *draft) { d.header["kid"] = "nobody's" }, authz.UnknownKey},
		{"signed with another key", func(d *draft) { d.signer = rsaOther() }, authz.BadSignature},
		{"the kid of a key of another kind", func(d *draft) { d.header["kid"] = p256Signer().kid }, authz.BadSignature},
		{"the alg of another kind of key", func(d *draft) { d.header["alg"] = "ES256" }, authz.BadSignature},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := newAPI(rsaSigner(), p256Signer()).verifier(t, at(noon), func(c *token.Config) {
				c.Issuers = []string{issuer, "https://old.example"}
				c.Audiences = []string{"istio-ca", "bailiwick"}
			})
			d := ztunnel(noon, rsaSigner())
			tt.change(d)
			want := wantCaller
			switch tt.want {
			default:
				wantReason(t, v, d.String(), tt.want)
				return
			case "no jti":
				want.TokenID = ""
			case "a long jti":
				want.TokenID = strings.Repeat("~", 128)
			case "no node":
				want.Node, want.NodeUID = "", ""
			case "no node UID":
				want.NodeUID = ""
			case "":
			}
			for range 2 { // verified, and remembered
				if caller, err := verify(t, v, d.String()); err != nil || caller != want {
					t.Errorf("got %+v, %v", caller, err)
				}
			}
		})
	}
}

// TestTexts has tokens whose claims are good, but not their text.
func TestTexts(t *testing.T) {
	good := ztunnel(noon, rsaSigner())
	header, payload := string(toJSON(good.header)), string(toJSON(good.claims))
	sign := rsaSigner().sign
	parts := strings.Split(good.String(), ".")
	for name, text := range map[string]string{
		"two segments":                   parts[0] + "." + parts[1],
		"four segments":                  good.String() + ".x",
		"an empty signature":             parts[0] + "." + parts[1] + ".",
		"an empty payload":               parts[0] + ".." + parts[2],
		"an empty header":                "." + parts[1] + "." + parts[2],
		"padding":                        good.String() + "==",
		"a line break in the signature":  parts[0] + "." + parts[1] + "." + parts[2][:9] + "\n" + parts[2][9:],
		"a space before it":              " " + good.String(),
		"a space after it":               good.String() + " ",
		"a standard base64 letter":       parts[0] + "." + parts[1] + ".+" + parts[2][1:],
		"trailing bits":                  parts[0] + "." + parts[1] + "." + trailingBits(parts[2]),
		"a payload that is no JSON":      sign(header, "ztunnel"),
		"a payload that is an array":     sign(header, "["+payload+"]"),
		"a payload with something after": sign(header, payload+"{}"),
		"a payload without an end":       sign(header, payload[:len(payload)-1]),
		"a payload that is not UTF-8":    sign(header, strings.Replace(payload, "{", "{\"x\":\"\xff\",", 1)),
		"a claim twice":                  sign(header, strings.Replace(payload, "{", `{"sub":"x",`, 1)),
		"a claim twice, within":          sign(header, strings.Replace(payload, `"namespace"`, `"namespace":"x","namespace"`, 1)),
		"a UID twice":                    sign(header, strings.Replace(payload, `"uid":"pod-uid"`, `"uid":"x","uid":"pod-uid"`, 1)),
		"alg twice":                      sign(strings.Replace(header, "{", `{"alg":"none",`, 1), payload),
		"a claim in capital letters":     sign(header, strings.Replace(payload, `"exp"`, `"EXP"`, 1)),
		"a header that is no JSON":       sign("RS256", payload),
		"16 000 brackets":                sign(`{"alg":`+strings.Repeat("[", 8000), payload),
	} {
		t.Run(name, func(t *testing.T) {
			v := newAPI(rsaSigner()).verifier(t, at(noon))
			want := authz.BadToken
			if name == "an empty signature" {
				want = authz.BadSignature
			}
			wantReason(t, v, text, want)
		})
	}
}

// trailingBits sets a bit after the last byte of a base64url text.
func trailingBits(s string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, s[len(s)-1])
	return s[:len(s)-1] + string(alphabet[last|1])
}

// TestAlgorithms has every kind of key that Kubernetes signs with.
func TestAlgorithms(t *testing.T) {
	signers := []signer{rsaSigner(), p256Signer(), p384Signer(), p521Signer()}
	v := newAPI(signers...).verifier(t, at(noon))
	for _, s := range signers {
		t.Run(s.method.Alg(), func(t *testing.T) {
			wantOK(t, v, ztunnel(noon, s).String())
			bent := ztunnel(noon, s).String()
			bent = bent[:len(bent)-8] + "AAAA" + bent[len(bent)-4:]
			wantReason(t, v, bent, authz.BadSignature)
			for _, other := range signers {
				if other.kid != s.kid {
					d := ztunnel(noon, s)
					d.header["alg"] = other.method.Alg()
					wantReason(t, v, d.String(), authz.BadSignature)
				}
			}
		})
	}
}

// TestKeyConfusion signs with the text of a public key, as HMAC allows.
func TestKeyConfusion(t *testing.T) {
	v := newAPI(rsaSigner()).verifier(t, at(noon))
	d := ztunnel(noon, rsaSigner())
	claimed := b64(toJSON(d.header)) + "." + b64(toJSON(d.claims))
	signature, err := jwt.SigningMethodHS256.Sign(claimed, toJSON(rsaSigner().jwk()))
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, v, claimed+"."+b64(signature), authz.BadSignature)
}

// TestReasonsInOrder has tokens that are wrong in every way from one on: the
// reason is the first.
func TestReasonsInOrder(t *testing.T) {
	wrongs := []struct {
		reason authz.Reason
		spoil  func(d *draft)
	}{
		{authz.BadToken, func(d *draft) { delete(d.claims, "sub") }},
		{authz.UnknownIssuer, func(d *draft) { d.claims["iss"] = "x" }},
		{authz.WrongAudience, func(d *draft) { d.claims["aud"] = "x" }},
		{authz.ExpiredToken, func(d *draft) { d.claims["exp"] = noon.Unix() }},
		{authz.EarlyToken, func(d *draft) { d.claims["nbf"] = noon.Unix() + 3600 }},
		{authz.NotPodBound, func(d *draft) { delete(d.kubernetes(), "pod") }},
		{authz.UnknownKey, func(d *draft) { d.header["kid"] = "x" }},
	}
	for i, first := range wrongs {
		a := newAPI(rsaSigner())
		d := ztunnel(noon, rsaOther())
		for _, wrong := range wrongs[i:] {
			wrong.spoil(d)
		}
		wantReason(t, a.verifier(t, at(noon), a.reviewingNever(t, first.reason)), d.String(), first.reason)
		if readings, _ := a.counts(); readings != 0 && first.reason != authz.UnknownKey {
			t.Errorf("%s: the key was looked for", first.reason)
		}
	}
}

// reviewingNever is a review that must not be asked for, if one would be in vain.
func (a *api) reviewingNever(t *testing.T, r authz.Reason) func(*token.Config) {
	if r == authz.UnknownKey {
		return func(*token.Config) {}
	}
	t.Cleanup(func() {
		if _, reviews := a.counts(); reviews != 0 {
			t.Errorf("%s: a review was asked for", r)
		}
	})
	return a.reviewing
}

func TestUnboundTokens(t *testing.T) {
	v := newAPI(rsaSigner()).verifier(t, at(noon), func(c *token.Config) { c.AllowUnbound = true })
	d := ztunnel(noon, rsaSigner())
	wantOK(t, v, d.String())
	node := d.kubernetes()["node"]
	delete(d.kubernetes(), "pod")
	wantReason(t, v, d.String(), authz.NotPodBound)
	delete(d.kubernetes(), "node")
	caller, err := verify(t, v, d.String())
	want := wantCaller
	want.Pod, want.PodUID, want.Node, want.NodeUID = "", "", "", ""
	if err != nil || caller != want || caller.Bound() {
		t.Errorf("got %+v, %v", caller, err)
	}
	d.claims["kubernetes.io"] = with(d.kubernetes(), "secret", object{"name": "s", "uid": "u"})
	wantReason(t, v, d.String(), authz.NotPodBound)
	d.claims["kubernetes.io"] = with(with(ztunnel(noon, rsaSigner()).kubernetes(), "toaster", 1), "node", node)
	wantReason(t, v, d.String(), authz.NotPodBound)
}

// TOK-1: the message has the wanted and the presented audience.
func TestTOK1(t *testing.T) {
	v := newAPI(rsaSigner()).verifier(t, at(noon))
	d := ztunnel(noon, rsaSigner())
	d.claims["aud"] = []string{"https://kubernetes.default.svc.cluster.local\n", "b", "c", "d", "e"}
	_, err := verify(t, v, d.String())
	const want = `denied (wrong-audience): meant for ["https://kubernetes.default.svc.cluster.local\n" "b" "c" "d" 1 more]; our audiences are ["istio-ca"]`
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// TestClaimsInMessages checks that a claim of any length and kind is fit for a log.
func TestClaimsInMessages(t *testing.T) {
	v := newAPI(rsaSigner()).verifier(t, at(noon))
	for _, evil := range []string{strings.Repeat("x", 9000), "a\nlevel=INFO msg=granted", "\u202e\x1b[2J", "\xff\xfe"} {
		for _, spoil := range []func(*draft){
			func(d *draft) { d.claims["iss"] = evil },
			func(d *draft) { d.claims["aud"] = []string{evil, evil, evil, evil, evil} },
			func(d *draft) { d.header[evil] = 1 },
			func(d *draft) { d.header["kid"] = evil[:min(len(evil), 1000)] },
			func(d *draft) { d.kubernetes()[evil] = 1 },
			func(d *draft) { d.kubernetes()["pod"] = object{"name": "p", "uid": "u", evil: 1} },
		} {
			d := ztunnel(noon, rsaSigner())
			spoil(d)
			_, err := verify(t, v, d.String())
			if err == nil {
				t.Errorf("accepted %q", evil)
			}
			checkNoSecret(t, err, d.String())
		}
	}
}

// TestErrorsNameMembers checks that what is wrong is named in full.
func TestErrorsNameMembers(t *testing.T) {
	for want, change := range map[string]func(*draft){
		`payload: "kubernetes.io.pod.name" is not a name`:    func(d *draft) { d.kubernetes()["pod"] = object{"name": "../x", "uid": "u"} },
		`payload: "kubernetes.io.namespace" is missing`:      func(d *draft) { delete(d.kubernetes(), "namespace") },
		`payload: "kubernetes.io.serviceaccount" is missing`: func(d *draft) { delete(d.kubernetes(), "serviceaccount") },
		`payload: "sub" does not name the service account`:   func(d *draft) { d.claims["sub"] = "x" },
		`made to last`:                                        func(d *draft) { d.claims["exp"] = 253402300799 }, // the end of 9999
		`payload: "exp" is not a time in s`:                   func(d *draft) { d.claims["exp"] = 253402300800 },
		`header: "kid" is missing or empty`:                   func(d *draft) { delete(d.header, "kid") },
		`payload: "kubernetes.io.pod.namespace" is not known`: func(d *draft) { d.kubernetes()["pod"] = object{"name": "p", "uid": "u", "namespace": "n"} },
		`payload: "kubernetes.io.serviceaccount" has no UID`:  func(d *draft) { d.kubernetes()["serviceaccount"] = object{"name": "ztunnel"} },
		`payload: "kubernetes.io.node.uid" is empty, not`:     func(d *draft) { d.kubernetes()["node"] = object{"name": "n", "uid": "a b"} },
	} {
		d := ztunnel(noon, rsaSigner())
		change(d)
		_, err := verify(t, newAPI(rsaSigner()).verifier(t, at(noon)), d.String())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
