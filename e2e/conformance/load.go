package conformance

import (
	"slices"
	"sync"
	"time"
)

const (
	eight = "istio, ztunnel: eight requests at once, on one connection"
	burst = "cert-manager/istio-csr#217; istio/istio#29187: a restart asks for all certificates at once"
)

// soon is how long a good answer may take, however many bad requests there are.
const soon = 2 * time.Second

func loadCases() []Case {
	return []Case{
		{ID: "load-01", Level: Must, Source: eight, run: func(t *T) {
			n := t.newNode()
			c := t.newAgent(n)
			var ids []string
			for range 8 {
				a := t.newAccount()
				t.newPod(a, n)
				ids = append(ids, a.id())
			}
			for _, id := range ids {
				t.issued(c, id)
			}
			for range 5 {
				for i, a := range t.atOnce(8, func(i int) *request { return t.request(c, ids[i]) }) {
					t.holds(a, ids[i])
				}
			}
		}, Says: "eight requests at once on one connection each get their own certificate"},
		{ID: "load-02", Level: Should, Source: eight, run: steady,
			Says: "two nodes of eight requests at once are served for three seconds without an error"},
		{ID: "load-03", Level: Should, Source: "who has no token must not keep out who has one", run: besideBad,
			Says: "two hundred requests with bad tokens do not delay good ones"},
		{ID: "load-04", Level: Should, Source: "istio, ztunnel: what is denied is asked for again, on the connection of all", run: besideDenied,
			Says: "identities that are denied, again and again, do not delay others on the connection"},
		{ID: "load-05", Level: Should, Source: "hashicorp/consul#5228: work for who has gone", run: besideGone,
			Says: "clients that go away before they are answered do no harm"},
		{ID: "load-06", Level: Must, Source: "istio, istio-agent and ztunnel set no deadline", run: func(t *T) {
			t.notIssued(t.atOnce(50, func(int) *request { return t.request(t.agent1, t.pay.id()) }))
			t.issued(t.agent1, t.cart.id())
		}, Says: "fifty requests for an identity that is not there are all answered within 15 s"},
		{ID: "load-07", Level: Must, Source: "istio, istio-agent and ztunnel set no deadline", run: func(t *T) {
			t.notIssued(t.atOnce(50, func(int) *request {
				return t.request(t.agent1, "spiffe://"+t.TrustDomain+"/ns/"+t.prefix+"/sa/"+t.name("none"))
			}))
			t.issued(t.agent1, t.cart.id())
		}, Says: "requests for fifty identities that are not there are all answered within 15 s"},
		{ID: "load-08", Level: Should, Source: burst, run: manyConnections,
			Says: "fifty clients that connect and ask at once are all served within 15 s"},
	}
}

// atOnce sends requests, made beforehand, at once on one connection.
func (t *T) atOnce(n int, each func(i int) *request) []*answer {
	requests, answers := make([]*request, n), make([]*answer, n)
	for i := range n {
		requests[i] = each(i)
	}
	parallel(n, func(i int) { answers[i] = t.conn.send(t.ctx, requests[i]) })
	return answers
}

// holds says that there is a certificate for the identity.
func (t *T) holds(a *answer, id string) {
	if !a.issued() {
		t.fatalf("%s: %v: %s", id, a.code, a.message)
	}
	t.judge(a, id)
}

// notIssued says that all were answered in time, and none with a certificate.
func (t *T) notIssued(all []*answer) {
	for _, a := range all {
		if a.issued() || a.took > bound {
			t.errorf("%v after %v: %s", a.code, a.took, a.message)
		}
	}
	t.times("all", all)
}

// times notes how long answers took.
func (t *T) times(of string, all []*answer) (slowest time.Duration) {
	var took []time.Duration
	for _, a := range all {
		took = append(took, a.took)
	}
	slices.Sort(took)
	at := func(percent int) time.Duration { return took[(len(took)-1)*percent/100] }
	t.note("%s: %d answers, half of them within %v, 99 of 100 within %v, the last after %v", of, len(took), at(50), at(99), at(100))
	return at(100)
}

// besideGood sends good requests while others are sent, and says that each is
// served soon.
func (t *T) besideGood(others func()) {
	good := make([]*request, 20)
	for i := range good {
		good[i] = t.request(t.agent1, t.cart.id())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		others()
	}()
	var answers []*answer
	for _, r := range good {
		answers = append(answers, t.conn.send(t.ctx, r))
		t.pause(25 * time.Millisecond)
	}
	<-done
	for _, a := range answers {
		t.holds(a, t.cart.id())
	}
	if slowest := t.times("good", answers); slowest > soon {
		t.errorf("a good request took %v", slowest)
	}
}

// besideBad has two hundred requests with bad tokens sent by another client.
func besideBad(t *T) {
	j := t.jwt(t.agent1)
	bad := &caller{t.signedBy(t.stranger(j), j), t.agent1.own}
	r := t.request(bad, t.cart.id())
	c, err := t.dial(t.tls())
	t.check("connecting", err)
	defer c.Close() //nolint:errcheck // all is answered
	answers := make([]*answer, 200)
	t.besideGood(func() { parallel(len(answers), func(i int) { answers[i] = c.send(t.ctx, r) }) })
	t.notIssued(answers)
}

// besideDenied has what ztunnel does with identities that it does not get, all
// at once: eight requests on the connection that has the good ones.
func besideDenied(t *T) {
	denied := make([]*request, 16)
	for i := range denied {
		denied[i] = t.request(t.agent1, "spiffe://"+t.TrustDomain+"/ns/"+t.prefix+"/sa/"+t.name("none"))
	}
	answers := make([]*answer, len(denied))
	t.besideGood(func() {
		parallel(8, func(first int) {
			for i := first; i < len(denied); i += 8 {
				answers[i] = t.conn.send(t.ctx, denied[i])
			}
		})
	})
	t.notIssued(answers)
}

func besideGone(t *T) {
	gone := t.atOnce(50, func(i int) *request {
		r := t.request(t.agent1, []string{t.cart.id(), t.pay.id()}[i%2])
		r.wait = time.Duration(1+i/5) * time.Millisecond
		return r
	})
	t.times("those that went away", gone)
	t.besideGood(func() {})
}

// steady is what two node agents make of a CA that starts anew, for a while.
func steady(t *T) {
	const streams, lasts = 8, 3 * time.Second
	var mu sync.Mutex
	var all []*answer
	type client struct {
		*connection
		*request
		id string
	}
	var clients []client
	for _, of := range []struct {
		c  *caller
		id string
	}{{t.agent1, t.cart.id()}, {t.agent2, t.pay.id()}} {
		conn, err := t.dial(t.tls())
		t.check("connecting", err)
		defer conn.Close() //nolint:errcheck // all is answered
		clients = append(clients, client{conn, t.request(of.c, of.id), of.id})
	}
	end := time.Now().Add(lasts) //nolint:forbidigo // an authority outside this process has no other clock
	parallel(len(clients)*streams, func(i int) {
		for c := clients[i%len(clients)]; time.Now().Before(end); { //nolint:forbidigo // as above
			a := c.send(t.ctx, c.request)
			mu.Lock()
			all = append(all, a)
			mu.Unlock()
			if !a.issued() {
				t.errorf("%s: %v: %s", c.id, a.code, a.message)
				return
			}
		}
	})
	t.times("all", all)
	t.note("%.0f certificates a second", float64(len(all))/lasts.Seconds())
}

// manyConnections is what nodes do when the network comes back.
func manyConnections(t *T) {
	const clients = 50
	conns, answers := make([]*connection, clients), make([]*answer, clients)
	r := t.request(t.agent1, t.cart.id())
	for i := range conns {
		var err error
		conns[i], err = t.dial(t.tls())
		t.check("connecting", err)
		defer conns[i].Close() //nolint:errcheck // all is answered
	}
	parallel(clients, func(i int) { answers[i] = conns[i].send(t.ctx, r) })
	for _, a := range answers {
		t.holds(a, t.cart.id())
	}
	if slowest := t.times("all", answers); slowest > bound {
		t.errorf("one took %v", slowest)
	}
}
