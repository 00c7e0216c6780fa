package conformance

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
)

const statusCodes = "gRPC, status codes; istio, istio-agent tries again on some"

func errorCases() []Case {
	return []Case{
		{ID: "error-01", Level: Must, Source: statusCodes, run: func(t *T) {
			t.told(codes.Unauthenticated, t.strangers())
			t.issued(t.agent1, t.cart.id())
		}, Says: "who proves no identity is told Unauthenticated"},
		{ID: "error-02", Level: Must, Source: statusCodes, run: func(t *T) {
			// Some make istio-agent ask again, five times within two seconds, and
			// none of them tells an operator "no" from "cannot tell".
			t.denials()
		}, Says: "a denial is not told in a code that means trouble, or to try again"},
		{ID: "error-03", Level: Should, Source: statusCodes, run: func(t *T) {
			t.told(codes.PermissionDenied, t.denials())
		}, Says: "who may not have an identity is told PermissionDenied, and so that its token is good"},
		{ID: "error-04", Level: Must, Source: statusCodes, run: func(t *T) {
			t.told(codes.InvalidArgument, t.malformed())
			t.issued(t.agent1, t.cart.id())
		}, Says: "a request that is no CSR is told InvalidArgument"},
		{ID: "error-05", Level: Must, Source: "logs have more readers than credentials may have", run: noEcho,
			Says: "no answer repeats a token or a CSR"},
		{ID: "error-06", Level: Should, Source: "istio/istio: refusals say nothing about the cluster", run: noLeak,
			Says: "no refusal names a node, pod, UID, issuer, audience or file that its caller did not name"},
		{ID: "error-07", Level: Should, Source: "who may ask for nothing learns nothing by asking", run: func(t *T) {
			c := t.caller(t.cartPod)
			t.alike(
				t.refused(c, t.both.id()),
				t.refused(c, t.pay.id()),
				t.refused(c, t.agent1.own),
				t.refused(c, t.newAccount().id()),
				t.refused(c, "spiffe://"+t.TrustDomain+"/ns/none/sa/none"),
			)
			t.issued(c, "")
		}, Says: "a workload that asks for another's identity is told the same, whether that runs here, elsewhere or nowhere"},
		{ID: "error-08", Level: Should, Source: "who is not known learns nothing by trying", run: func(t *T) {
			t.alike(t.strangers()...)
			t.issued(t.agent1, t.cart.id())
		}, Says: "whatever is wrong with a token, its bearer is told the same"},
		{ID: "error-09", Level: Profile, Source: "docs/wire.md", run: outwardWords,
			Says: "a refusal is fixed words and a request ID, and google.rpc.ErrorInfo repeats both"},
		{ID: "error-10", Level: Profile, Source: "docs/wire.md", run: func(t *T) {
			seen := map[string]bool{}
			for range 20 {
				id := t.requestID(t.ask(t.agent1, "", withHeader("authorization")))
				if seen[id] {
					t.errorf("request ID %s is given twice", id)
				}
				seen[id] = true
			}
		}, Says: "each refusal has a request ID of its own"},
	}
}

func (t *T) told(code codes.Code, all []*answer) {
	for _, a := range all {
		if a.code != code {
			t.errorf("%v: %s", a.code, a.message)
		}
	}
}

// strangers are the answers to requests whose tokens prove nothing.
func (t *T) strangers() (all []*answer) {
	j := t.jwt(t.agent1)
	vault := t.boundTo(t.cartPod)
	vault.Audiences = []string{"vault"}
	flipped := slices.Clone(j.signature)
	flipped[0] ^= 1
	for _, values := range [][]string{
		nil, {""}, {"Bearer abc"}, {"Basic " + t.agent1.token},
		{"Bearer " + t.signedBy(t.stranger(j), j)},
		{"Bearer " + j.under(flipped)},
		{"Bearer " + t.token(vault)},
	} {
		all = append(all, t.refused(t.agent1, t.cart.id(), withHeader("authorization", values...)))
	}
	return all
}

// denials are the answers to a node agent that asks for too much.
func (t *T) denials() []*answer {
	t.issued(t.agent1, t.cart.id())
	return []*answer{
		t.refused(t.agent1, t.pay.id()),
		t.refused(t.agent1, "spiffe://"+t.TrustDomain+"/ns/none/sa/none"),
		t.refused(t.agent1, "spiffe://other.test/ns/x/sa/y"),
		t.refused(t.caller(t.cartPod), t.both.id()),
	}
}

// malformed are the answers to what is no CSR.
func (t *T) malformed() (all []*answer) {
	body := base64.StdEncoding.EncodeToString([]byte("no certification request at all"))
	for _, text := range []string{"", "abc", "-----BEGIN CERTIFICATE REQUEST-----\n" + body + "\n-----END CERTIFICATE REQUEST-----\n"} {
		all = append(all, t.refused(t.agent1, t.cart.id(), withCSR(text)))
	}
	return all
}

// text is all that an answer says.
func (a *answer) text() string { return a.message + " " + fmt.Sprint(a.details...) }

func noEcho(t *T) {
	j := t.jwt(t.agent1)
	secret := []string{"BEGIN"}
	for _, token := range []string{t.agent1.token, t.signedBy(t.stranger(j), j)} {
		secret = append(secret, strings.Split(token, ".")...)
	}
	forged := t.refused(t.agent1, "", withHeader("authorization", "Bearer "+strings.Join(secret[4:], ".")))
	notBearer := t.refused(t.agent1, "", withHeader("authorization", t.agent1.token))
	damaged := t.refused(t.agent1, "", withHeader("authorization", "Bearer "+t.agent1.token+".e30"))
	csr := strings.Replace(t.plainCSR(), "\nMI", "\nMA", 1)
	secret = append(secret, strings.Split(csr, "\n")[1])
	wrong := t.refused(t.agent1, t.cart.id(), withCSR(csr))
	for _, a := range append(t.denials(), forged, notBearer, damaged, wrong) {
		for _, s := range secret {
			if strings.Contains(a.text(), s) {
				t.errorf("an answer has %.12s... of what was sent: %v: %.80s", s, a.code, a.message)
			}
		}
	}
}

func noLeak(t *T) {
	j := t.jwt(t.agent1)
	issuer, _ := j.claims["iss"].(string)
	jti, _ := j.claims["jti"].(string)
	others := []string{
		t.two.name, t.two.uid, t.prefix + "-agent-2", "pay-1", "cart-1", "both-1",
		t.cart.uid, t.pay.uid, t.both.uid, t.cartPod.uid, issuer, jti, t.Audience,
		t.NodeAgentNamespace + "/" + t.NodeAgentName, "/var/", "/etc/", ".go:", "goroutine",
	}
	for _, a := range slices.Concat(t.denials(), t.strangers(), t.malformed()) {
		for _, s := range others {
			if s != "" && strings.Contains(a.text(), s) {
				t.errorf("%v: %s: it has %q", a.code, a.message, s)
			}
		}
	}
}

// alike says that the answers differ in nothing but what tells them apart in a
// log.
func (t *T) alike(all ...*answer) {
	id := regexp.MustCompile(`[0-9a-f]{8,}(-[0-9a-f]+)*`)
	said := func(a *answer) string { return fmt.Sprintf("%v: %s", a.code, id.ReplaceAllString(a.text(), "ID")) }
	for _, a := range all[1:] {
		if said(a) != said(all[0]) {
			t.errorf("%s, and %s", said(all[0]), said(a))
		}
	}
}

// requestID returns the request ID of a refusal, and says what is not as
// docs/wire.md has it.
func (t *T) requestID(a *answer) string {
	m := regexp.MustCompile(`^([a-z ,-]+) \(request ([0-9a-f]{16})\)$`).FindStringSubmatch(a.message)
	if m == nil {
		t.fatalf("the message is %q", a.message)
	}
	for _, d := range a.details {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			if info.GetReason() != m[1] || info.GetMetadata()["requestId"] != m[2] || info.GetDomain() != "bailiwick" {
				t.errorf("the message is %q, and google.rpc.ErrorInfo is %v", a.message, info)
			}
			return m[2]
		}
	}
	t.fatalf("no google.rpc.ErrorInfo with %q", a.message)
	return ""
}

func outwardWords(t *T) {
	workload := t.caller(t.cartPod)
	for _, one := range []struct {
		words string
		*answer
	}{
		{"not-on-node", t.refused(t.agent1, t.pay.id())},
		{"denied", t.refused(t.agent1, "spiffe://other.test/ns/x/sa/y")},
		{"denied", t.refused(workload, t.both.id())},
		{"unauthenticated", t.refused(t.agent1, "", withHeader("authorization"))},
		{"bad-csr", t.refused(t.agent1, t.cart.id(), withCSR("abc"))},
	} {
		t.requestID(one.answer)
		if words, _, _ := strings.Cut(one.message, " ("); words != one.words {
			t.errorf("the message is %q, want %q", one.message, one.words)
		}
	}
}

// bound is how long any answer may take, since clients set no deadline of their
// own.
const bound = 15 * time.Second
