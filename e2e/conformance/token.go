package conformance

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	rfc6750     = "RFC 6750, Section 2.1"
	boundTokens = "Kubernetes, bound service account tokens" //nolint:gosec // the name of a page
	bcp         = "RFC 8725 (JSON Web Token best current practices)"
	claims      = "Kubernetes, pkg/serviceaccount/claims.go: what a TokenReview looks at"
)

func tokenCases() []Case {
	return slices.Concat(headerCases(), audienceCases(), boundCases(), forgeryCases(), claimCases(), metadataCases())
}

// headerCases are about the headers of a request.
func headerCases() []Case {
	return []Case{
		{ID: "token-01", Level: Must, Source: boundTokens, run: func(t *T) {
			for _, id := range []string{"", t.cart.id()} {
				t.refused(t.agent1, id, withHeader("authorization"))
			}
			t.issued(t.agent1, t.cart.id())
		}, Says: "who sends no token gets nothing"},
		{ID: "token-02", Level: Must, Source: boundTokens, run: func(t *T) {
			for _, v := range []string{"", " ", "Bearer", "Bearer ", "Bearer    ", "Bearer abc", "Bearer a.b", "Bearer ..", "Bearer a.b.c", "Bearer a.b.c.d", "Bearer e30.e30."} {
				t.note("authorization %q:", v)
				t.refused(t.agent1, t.cart.id(), withHeader("authorization", v))
			}
			t.issued(t.agent1, t.cart.id())
		}, Says: "what is no token is taken for none"},
		{ID: "token-03", Level: Must, Source: "golang/vulndb#3553 (CVE-2025-30204)", run: hugeTokens,
			Says: "a token of a mebibyte gets nothing, and does no harm"},
		{ID: "token-04", Level: Profile, Source: rfc6750 + ": a request has one credential", run: func(t *T) {
			good, bad := "Bearer "+t.agent1.token, "Bearer "+t.caller(t.cartPod).token
			for _, values := range [][]string{{good, bad}, {bad, good}, {good, good}, {good, ""}} {
				t.refused(t.agent1, t.cart.id(), withHeader("authorization", values...))
			}
			t.issued(t.agent1, t.cart.id())
		}, Says: "two authorization values are refused, whatever they are"},
		{ID: "token-05", Level: Profile, Source: "RFC 9110, Section 11.1: the scheme is case-insensitive", run: func(t *T) {
			for _, scheme := range []string{"bearer", "BEARER", "bEaReR"} {
				t.issued(t.agent1, t.cart.id(), withHeader("authorization", scheme+" "+t.agent1.token))
			}
		}, Says: "the scheme Bearer may be written in any case"},
		{ID: "token-06", Level: Should, Source: rfc6750, run: func(t *T) {
			for _, prefix := range []string{"", "Basic ", "Token ", "Bearer", "Bearers ", "DPoP "} {
				t.note("prefix %q:", prefix)
				t.refused(t.agent1, t.cart.id(), withHeader("authorization", prefix+t.agent1.token))
			}
			t.issued(t.agent1, t.cart.id())
		}, Says: "a token under another scheme, or under none, is refused"},
		{ID: "token-07", Level: Should, Source: "istio: clusterid may be empty, and is the local cluster then", run: func(t *T) {
			t.issued(t.agent1, t.cart.id(), withHeader("clusterid"))
			t.refused(t.agent1, t.pay.id(), withHeader("clusterid"))
		}, Says: "a request without clusterid is one of the local cluster"},
		{ID: "token-08", Level: Must, Source: ambient, run: func(t *T) {
			for _, v := range []string{t.ClusterID, t.name("cluster"), ""} {
				t.refused(t.agent1, t.pay.id(), withHeader("clusterid", v))
			}
			t.issued(t.agent1, t.cart.id())
		}, Says: "no clusterid gives what the token does not"},
		{ID: "token-09", Level: Profile, Source: "istio/istio: clients name their cluster as they were told, years ago", run: func(t *T) {
			t.issued(t.agent1, t.cart.id(), withHeader("clusterid", t.name("cluster")))
		}, Says: "with one cluster configured, another clusterid is accepted, and lends nothing"},
		{ID: "token-10", Level: Profile, Source: "a request with two clusters has no one meaning", run: func(t *T) {
			t.refused(t.agent1, t.cart.id(), withHeader("clusterid", t.ClusterID, t.ClusterID))
			t.refused(t.agent1, t.cart.id(), withHeader("clusterid", t.ClusterID, "other"))
			t.issued(t.agent1, t.cart.id(), withHeader("clusterid", t.ClusterID))
		}, Says: "two clusterid values are refused"},
	}
}

// hugeTokens sends what some client libraries refuse to send, if the authority
// tells them its limit; what counts is that nothing is issued, and that the
// authority goes on.
func hugeTokens(t *T) {
	for _, size := range []int{1 << 10, 12 << 10, 30 << 10, 1 << 20} {
		for _, text := range []string{".", "a", "a.", " "} {
			a := t.ask(t.agent1, t.cart.id(), withHeader("authorization", "Bearer "+strings.Repeat(text, size/len(text))+"."))
			t.note("%d of %q: %v after %v", size, text, a.code, a.took)
			if a.issued() || a.took > bound {
				t.errorf("%d bytes of %q: %v after %v", size, text, a.code, a.took)
			}
		}
		t.issued(t.agent1, t.cart.id())
	}
}

// audienceCases are about whom a token is meant for.
func audienceCases() []Case {
	meantFor := func(t *T, audiences ...string) *caller {
		r := t.boundTo(t.cartPod)
		r.Audiences = audiences
		return &caller{t.token(r), t.cart.id()}
	}
	return []Case{
		{ID: "token-11", Level: Must, Source: "Kubernetes, TokenReview: audiences; istio/istio#14913", run: func(t *T) {
			t.refused(meantFor(t, "vault"), "")
			t.refused(meantFor(t, t.Audience+"x"), "")
			t.issued(meantFor(t, t.Audience), "")
		}, Says: "a token that is meant for somebody else is refused"},
		{ID: "token-12", Level: Must, Source: "Kubernetes: every pod has a token for the API server", run: func(t *T) {
			c := meantFor(t)
			if text, _ := json.Marshal(t.jwt(c).claims["aud"]); strings.Contains(string(text), `"`+t.Audience+`"`) {
				t.cannot("the audience of the API server's own tokens, %s, is the authority's", text)
			}
			t.refused(c, "")
			t.issued(meantFor(t, t.Audience), "")
		}, Says: "a token that is meant for the API server is refused"},
		{ID: "token-13", Level: Profile, Source: bcp + ", Section 3.9", run: func(t *T) {
			t.refused(meantFor(t, t.Audience, "vault"), "")
			t.refused(meantFor(t, "vault", t.Audience), "")
			t.issued(meantFor(t, t.Audience), "")
		}, Says: "a token that is meant for others, too, is refused, since they could present it"},
	}
}

// boundCases are about what a token is bound to.
func boundCases() []Case {
	agentOf := func(t *T, kind string) *caller {
		r := TokenRequest{Namespace: t.NodeAgentNamespace, Account: t.NodeAgentName, BoundKind: kind, Audiences: []string{t.Audience}}
		switch kind {
		case "Secret":
			r.BoundName = t.name("secret")
		case "Node":
			r.BoundName, r.BoundUID = t.one.name, t.one.uid
		}
		return &caller{t.token(r), t.agent1.own}
	}
	speaksForNobody := func(kind string) func(*T) {
		return func(t *T) {
			c := agentOf(t, kind)
			t.refused(c, t.cart.id())
			t.refused(c, t.pay.id())
			t.issued(t.agent1, t.cart.id())
		}
	}
	return []Case{
		{ID: "token-14", Level: Must, Source: boundTokens, run: speaksForNobody(""),
			Says: "a node agents' token that is bound to nothing does not get another's identity"},
		{ID: "token-15", Level: Must, Source: boundTokens, run: speaksForNobody("Secret"),
			Says: "a node agents' token that is bound to a Secret does not get another's identity"},
		{ID: "token-16", Level: Must, Source: boundTokens, run: speaksForNobody("Node"),
			Says: "a node agents' token that is bound to a node, and to no pod, does not get another's identity"},
		{ID: "token-17", Level: Profile, Source: boundTokens, run: func(t *T) {
			for _, kind := range []string{"", "Secret", "Node"} {
				t.refused(agentOf(t, kind), "")
			}
			t.issued(t.agent1, "")
		}, Says: "a token that is not bound to a pod gets nothing at all"},
		{ID: "token-18", Level: Must, Source: ambient, run: func(t *T) {
			c := t.caller(t.cartPod)
			for _, id := range []string{t.pay.id(), t.agent1.own, t.newAccount().id()} {
				t.refused(c, id)
			}
			t.issued(c, t.cart.id())
		}, Says: "a workload gets its own identity, and neither a node agent's nor one from elsewhere"},
		{ID: "token-19", Level: Profile, Source: "Kubernetes, BoundServiceAccountTokenVolume: a kubelet's tokens live for hours", run: func(t *T) {
			r := t.boundTo(t.cartPod)
			r.Life = 366 * 24 * time.Hour
			c := &caller{t.token(r), t.cart.id()}
			if j := t.jwt(c); j.seconds("exp")-j.seconds("iat") < 7*24*3600 {
				t.cannot("the API server makes no token that lasts")
			}
			t.refused(c, "")
			t.issued(t.caller(t.cartPod), "")
		}, Says: "a token that was made to last for months is refused"},
	}
}

// A madeUp token is one that no API server made.
type madeUp struct{ is, token string }

// worthless says that no such token gets anything: neither what an agent has,
// nor an agent's own.
func (t *T) worthless(all ...madeUp) {
	t.issued(t.agent1, t.cart.id())
	for _, m := range all {
		t.note("%s:", m.is)
		c := &caller{m.token, t.agent1.own}
		t.refused(c, t.cart.id())
		t.refused(c, "")
	}
}

func (t *T) jwt(c *caller) *jwt {
	j, err := parseJWT(c.token)
	t.check("reading a token", err)
	return j
}

// stranger is a key that signs as the cluster's does, and is not it.
func (t *T) stranger(j *jwt) crypto.Signer {
	a, err := algorithmOf(j.header["alg"])
	t.check("reading a token", err)
	key, err := a.newKey()
	t.check("making a key", err)
	return key
}

func (t *T) signedBy(key crypto.Signer, j *jwt) string {
	token, err := j.by(key)
	t.check("signing a token", err)
	return token
}

// forgeryCases are about tokens that the cluster did not sign.
func forgeryCases() []Case {
	return []Case{
		{ID: "token-20", Level: Must, Source: bcp + ", Section 3.2", run: func(t *T) {
			j := t.jwt(t.agent1)
			t.worthless(madeUp{"signed by another key", t.signedBy(t.stranger(j), j)})
		}, Says: "a token signed by another key than the one it names is refused"},
		{ID: "token-21", Level: Must, Source: bcp + ", Section 3.2", run: func(t *T) {
			j := t.jwt(t.agent1)
			key := t.stranger(j)
			var all []madeUp
			for _, kid := range []any{"unknown", "", nil, "../../../../dev/null", "' OR 1=1 --", 1} {
				all = append(all, madeUp{fmt.Sprintf("of key %v", kid), t.signedBy(key, j.with(map[string]any{"kid": kid}))})
			}
			t.worthless(all...)
		}, Says: "a token signed by a key that the cluster does not have is refused"},
		{ID: "token-22", Level: Must, Source: bcp + ", Section 2.1", run: func(t *T) {
			j := t.jwt(t.agent1)
			var all []madeUp
			for _, alg := range []any{"none", "None", "NONE", "nOnE", "", nil} {
				j := j.with(map[string]any{"alg": alg})
				all = append(all, madeUp{fmt.Sprintf("alg %v", alg), j.under(nil)}, madeUp{fmt.Sprintf("alg %v, signed", alg), j.under(j.signature)})
			}
			t.worthless(all...)
		}, Says: "a token that says it needs no signature is refused"},
		{ID: "token-23", Level: Must, Source: bcp + ", Section 2.1", run: publicKeyAsSecret,
			Says: "a token signed with the cluster's public key as a shared secret is refused"},
		{ID: "token-24", Level: Must, Source: bcp + ", Sections 3.10 and 2.1", run: broughtKeys,
			Says: "a token that brings its own key, or says where to fetch it, is refused"},
		{ID: "token-25", Level: Must, Source: bcp, run: func(t *T) {
			j, workload := t.jwt(t.agent1), t.jwt(t.caller(t.cartPod))
			otherHeader := j.with(map[string]any{"typ": "at+jwt"})
			t.worthless(
				madeUp{"an agent's claims under a workload's signature", j.under(workload.signature)},
				madeUp{"the signature of another header", otherHeader.under(j.signature)},
			)
			// It must not count for its own identity either.
			later := &jwt{workload.header, maps.Clone(workload.claims), nil}
			later.claims["exp"] = workload.seconds("exp") + 1
			t.refused(&caller{later.under(workload.signature), t.cart.id()}, "")
		}, Says: "a token that was changed after it was signed is refused"},
		{ID: "token-26", Level: Must, Source: bcp + "; CVE-2022-21449: a signature of zeros", run: func(t *T) {
			j := t.jwt(t.agent1)
			s := j.signature
			flipped := slices.Clone(s)
			flipped[len(s)/2] ^= 1
			t.worthless(
				madeUp{"no signature", j.under(nil)},
				madeUp{"half a signature", j.under(s[:len(s)/2])},
				madeUp{"a signature without its last byte", j.under(s[:len(s)-1])},
				madeUp{"a signature and a byte more", j.under(append(slices.Clone(s), 0))},
				madeUp{"a signature with one bit flipped", j.under(flipped)},
				madeUp{"a signature of zeros", j.under(make([]byte, len(s)))},
				madeUp{"no third segment", t.agent1.token[:strings.LastIndex(t.agent1.token, ".")]},
				madeUp{"a fourth segment", t.agent1.token + ".e30"},
			)
		}, Says: "a token with a damaged signature is refused"},
	}
}

func publicKeyAsSecret(t *T) {
	if t.keySet == nil {
		t.cannot("nobody can read the cluster's public keys")
	}
	j := t.jwt(t.agent1)
	public, err := publicKey(t.ctx, t.keySet, j.header["kid"])
	t.check("reading the cluster's public keys", err)
	der, err := x509.MarshalPKIXPublicKey(public)
	t.check("encoding a public key", err)
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	secrets := map[string][]byte{"DER": der, "PEM": text, "PEM without its last newline": text[:len(text)-1], "the key ID": fmt.Append(nil, j.header["kid"])}
	switch k := public.(type) {
	case *rsa.PublicKey:
		secrets["the modulus"], secrets["PKCS #1"] = k.N.Bytes(), x509.MarshalPKCS1PublicKey(k)
	case *ecdsa.PublicKey:
		secrets["the point"], err = k.Bytes()
		t.check("encoding a public key", err)
	}
	var all []madeUp
	for name, secret := range secrets {
		for alg, hash := range map[string]crypto.Hash{"HS256": crypto.SHA256, "HS384": crypto.SHA384, "HS512": crypto.SHA512} {
			all = append(all, madeUp{alg + " with " + name, j.byHMAC(alg, hash, secret)})
		}
	}
	t.worthless(all...)
}

// broughtKeys cannot see whether a key is fetched, only that it is not trusted.
func broughtKeys(t *T) {
	j := t.jwt(t.agent1)
	key := t.stranger(j)
	own, err := jwk(key.Public())
	t.check("encoding a key", err)
	own["kid"], own["use"], own["alg"] = j.header["kid"], "sig", j.header["alg"]
	der, err := selfSigned(key)
	t.check("making a certificate", err)
	var all []madeUp
	for name, v := range map[string]any{
		"jwk": own, "x5c": []any{der}, // encoded as base64, which is what x5c has
		"jku": "https://keys.invalid/jwks", "x5u": "https://keys.invalid/chain.pem",
	} {
		all = append(all,
			madeUp{name + " for the cluster's key", t.signedBy(key, j.with(map[string]any{name: v}))},
			madeUp{name + " for a key of its own", t.signedBy(key, j.with(map[string]any{name: v, "kid": "own"}))},
			madeUp{name + " and no key ID", t.signedBy(key, j.with(map[string]any{name: v, "kid": nil}))})
	}
	t.worthless(all...)
}
