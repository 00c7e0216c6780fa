package conformance

import (
	"maps"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
)

// What the cluster's own key signs is the cluster's word, and who has the key
// may sign what he likes. So these cases are no MUST, but for what the API
// server itself brings about.

// minted has the cluster's key sign the claims of a caller's token, changed.
func (t *T) minted(c *caller, change func(*jwt)) *caller {
	if t.sign == nil {
		t.cannot("nobody here can sign with the key that the API server signs with")
	}
	j := t.jwt(c)
	kid := j.header["kid"]
	j.claims = maps.Clone(j.claims)
	if k, ok := j.claims["kubernetes.io"].(map[string]any); ok {
		j.claims["kubernetes.io"] = maps.Clone(k)
	}
	change(j)
	token, err := t.sign(j.claims)
	t.check("signing a token", err)
	if got := t.jwt(&caller{token: token}).header["kid"]; got != kid {
		t.cannot("the key that was given is %v, and the API server signs with %v", got, kid)
	}
	return &caller{token, c.own}
}

// object is a member of kubernetes.io.
func (j *jwt) object(name string, v any) {
	k, _ := j.claims["kubernetes.io"].(map[string]any)
	if k[name] = v; v == nil {
		delete(k, name)
	}
}

func objectRef(name, uid string) map[string]any { return map[string]any{"name": name, "uid": uid} }

// mintedRefused says that the claims of an agent are refused once they are
// changed, and accepted as they are.
func mintedRefused(changes ...func(*T, *jwt)) func(*T) {
	return func(t *T) {
		c := t.newAgent(t.one)
		t.issued(t.minted(c, func(*jwt) {}), t.cart.id())
		for _, change := range changes {
			m := t.minted(c, func(j *jwt) { change(t, j) })
			t.refused(m, t.cart.id())
			t.refused(m, "")
		}
	}
}

// moved moves the claims that are times, by seconds from when the token was made.
func moved(iat, nbf, exp int64) func(*T, *jwt) {
	return func(_ *T, j *jwt) {
		now := j.seconds("iat")
		j.claims["iat"], j.claims["nbf"], j.claims["exp"] = now+iat, now+nbf, now+exp
	}
}

func claimCases() []Case {
	return []Case{
		{ID: "token-27", Level: Must, Source: "RFC 7519, Section 4.1.4; istio/istio#26225", run: expired,
			Says: "a token that has expired is refused"},
		{ID: "token-28", Level: Should, Source: "istio/istio#26225: an answer that is remembered must not outlive the token", run: func(t *T) {
			// The API server's own leeway is a minute, and what it said is remembered for ten seconds.
			t.pausedUntilExpired(75)
		}, Slow: true, Says: "a token that was accepted is refused within 75 s of its expiry"},
		{ID: "token-29", Level: Profile, Source: "RFC 7519, Section 4.1.4: on or after the time it must not be accepted", run: func(t *T) {
			t.pausedUntilExpired(2)
		}, Says: "a token that was accepted is refused from the moment that it expires"},
		{ID: "token-30", Level: Profile, Source: bcp + "; RFC 7519", run: mintedRefused(func(_ *T, j *jwt) { delete(j.claims, "exp") }),
			Says: "a token that never expires is refused"},
		{ID: "token-31", Level: Should, Source: claims, run: mintedRefused(moved(600, 600, 4200), moved(0, 600, 4200), moved(600, 0, 4200)),
			Says: "a token from ten minutes in the future is refused"},
		{ID: "token-32", Level: Should, Source: "golang-jwt/jwt#98; kubernetes/kubernetes#124022", run: func(t *T) {
			c := t.newAgent(t.one)
			t.issued(t.minted(c, func(j *jwt) { moved(20, 20, 3620)(t, j) }), t.cart.id())
		}, Says: "a token from a clock that is 20 s ahead is accepted"},
		{ID: "token-33", Level: Should, Source: claims, run: mintedRefused(func(_ *T, j *jwt) { j.claims["iss"] = "https://kubernetes.invalid" },
			func(_ *T, j *jwt) { delete(j.claims, "iss") }),
			Says: "a token of another issuer is refused, though the key is the cluster's"},
		{ID: "token-34", Level: Should, Source: bcp + ", Section 3.9", run: mintedRefused(func(_ *T, j *jwt) { delete(j.claims, "aud") },
			func(t *T, j *jwt) { j.claims["aud"] = []any{t.Audience + "/"} }, func(_ *T, j *jwt) { j.claims["aud"] = []any{} }),
			Says: "a token that is meant for nobody is refused"},
		{ID: "token-35", Level: Should, Source: ambient, run: func(t *T) {
			c := t.caller(t.cartPod)
			t.issued(t.minted(c, func(*jwt) {}), "")
			agents := "system:serviceaccount:" + t.NodeAgentNamespace + ":" + t.NodeAgentName
			t.refused(t.minted(c, func(j *jwt) { j.claims["sub"] = agents }), t.both.id())
		}, Says: "a workload's token whose subject is a node agent does not get another's identity"},
		{ID: "token-36", Level: Profile, Source: claims, run: mintedRefused(
			func(t *T, j *jwt) { j.claims["sub"] = "system:serviceaccount:" + t.cart.namespace + ":" + t.cart.name },
			func(_ *T, j *jwt) { j.claims["sub"] = "" },
			func(t *T, j *jwt) { j.object("serviceaccount", objectRef(t.cart.name, t.cart.uid)) },
			func(t *T, j *jwt) { j.object("namespace", t.cart.namespace) },
			func(t *T, j *jwt) { j.object("serviceaccount", objectRef(t.NodeAgentName, t.cart.uid)) },
		), Says: "a token whose subject and objects do not agree is refused"},
		{ID: "token-37", Level: Should, Source: ambient, run: func(t *T) {
			c := t.newAgent(t.one)
			t.issued(t.minted(c, func(*jwt) {}), t.cart.id())
			t.refused(t.minted(c, func(j *jwt) { j.object("node", objectRef(t.two.name, t.two.uid)) }), t.pay.id())
		}, Says: "a token that names another node than its pod's does not get what runs there"},
		{ID: "token-38", Level: Profile, Source: "Kubernetes, KEP-4193: a pod's token names its node", run: mintedRefused(
			func(t *T, j *jwt) { j.object("node", objectRef(t.two.name, t.two.uid)) },
			func(t *T, j *jwt) { j.object("node", objectRef(t.one.name, t.two.uid)) },
			func(t *T, j *jwt) { j.object("node", objectRef(t.two.name, t.one.uid)) },
			func(t *T, j *jwt) { j.object("node", map[string]any{"name": t.one.name}) },
			func(_ *T, j *jwt) { j.object("node", nil) },
		), Says: "a token that does not name its pod's node, by name and UID, gets nothing"},
		{ID: "token-39", Level: Must, Source: "kubernetes/kubernetes#62993", run: otherPod,
			Says: "a token whose pod has another UID is refused"},
		{ID: "token-40", Level: Profile, Source: bcp, run: mintedRefused(moved(0, 0, 366*24*3600), moved(-366*24*3600, 0, 3600)),
			Says: "a token that was made to last for a year is refused, though the key is the cluster's"},
	}
}

// expired needs the cluster's key, or minutes.
func expired(t *T) {
	switch {
	case t.sign != nil:
		mintedRefused(moved(-7200, -7200, -300))(t)
	case t.slow:
		t.pausedUntilExpired(75)
	default:
		t.cannot("it needs the key that the API server signs with, or minutes, and slow cases were not asked for")
	}
}

// pausedUntilExpired uses a token until it expires, and so many seconds later.
func (t *T) pausedUntilExpired(later int) {
	const shortest = 10 * time.Minute // that an API server makes
	life := 5 * time.Second
	p := t.newPod(t.newAccount(), t.one)
	c := t.caller(p)
	t.issued(c, "")
	switch {
	case t.sign != nil:
		c = t.minted(c, func(j *jwt) { moved(0, 0, int64(life/time.Second))(t, j) })
	case !t.slow:
		t.cannot("it needs the key that the API server signs with, or minutes, and slow cases were not asked for")
	default:
		life = shortest
		r := t.boundTo(p)
		r.Life = shortest
		c.token = t.token(r)
	}
	t.issued(c, "")
	t.pause(life + time.Duration(later)*time.Second)
	if a := t.ask(c, ""); !a.refused() {
		t.fatalf("%v: %s", a.code, a.message)
	}
}

// otherPod does it as clusters do, and with the cluster's key as nobody does.
func otherPod(t *T) {
	a := t.newAccount()
	p := t.newPod(a, t.one)
	old := t.caller(p)
	t.issued(old, "")
	t.again(p, t.one)
	t.becomesRefused(old, "")
	t.issued(t.caller(p), "")
	if t.sign == nil {
		return
	}
	agent := t.newAgentPod(t.one)
	c := t.caller(agent)
	t.issued(t.minted(c, func(*jwt) {}), t.cart.id())
	for _, pod := range []map[string]any{objectRef(agent.name, t.cartPod.uid), objectRef(t.cartPod.name, agent.uid), {"name": agent.name}, {"uid": agent.uid}} {
		m := t.minted(c, func(j *jwt) { j.object("pod", pod) })
		t.refused(m, t.cart.id())
	}
}

// metadataCases are about the identity that a request names.
func metadataCases() []Case {
	return []Case{
		{ID: "token-41", Level: Should, Source: "istio, ztunnel: who names an identity does not want his own", run: func(t *T) {
			for name, v := range map[string]*structpb.Value{
				"a number": structpb.NewNumberValue(1),
				"a bool":   structpb.NewBoolValue(true),
				"null":     structpb.NewNullValue(),
				"a list":   structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue(t.cart.id())}}),
				"a struct": structpb.NewStructValue(&structpb.Struct{}),
				"nothing":  {},
				"empty":    structpb.NewStringValue(""),
			} {
				t.note("%s:", name)
				t.refused(t.agent1, "", withMetadata("ImpersonatedIdentity", v))
			}
			t.issued(t.agent1, "")
		}, Says: "a request whose ImpersonatedIdentity is no string, or empty, is not taken for one without"},
		{ID: "token-42", Level: Should, Source: "istio, istio-agent: clients send more metadata than one CA reads", run: func(t *T) {
			for _, name := range []string{"CertSigner", "impersonatedIdentity", "unknown"} {
				v := structpb.NewStringValue(t.pay.id())
				t.issued(t.agent1, "", withMetadata(name, v))
				t.issued(t.agent1, t.cart.id(), withMetadata(name, v))
			}
		}, Says: "other metadata changes nothing"},
	}
}
