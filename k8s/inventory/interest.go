package inventory

import (
	"sync"

	"github.com/bailiwick-ca/bailiwick/authz"
	"k8s.io/apimachinery/pkg/types"
)

// A subject is something that an event can be about.
type subject struct {
	kind topic
	name types.NamespacedName // of a pod or an account
	node string               // of a node, or where a pod of the account is
}

type topic string

const (
	aboutPod       topic = "pod"
	aboutNode      topic = "node"
	aboutAccount   topic = "account"
	aboutPlacement topic = "placement" // a pod of an account on a node
	aboutAge       topic = "age"       // the view was proven to be younger
)

// subjects returns everything that the facts about q depend on.
func subjects(q *authz.Query) []subject {
	return []subject{
		{kind: aboutPod, name: callerPodName(q)},
		{kind: aboutNode, node: q.Caller.Node},
		{kind: aboutAccount, name: types.NamespacedName(q.Caller.ServiceAccount)},
		{kind: aboutAccount, name: types.NamespacedName(q.Target)},
		{kind: aboutPlacement, name: types.NamespacedName(q.Target), node: q.Caller.Node},
	}
}

// placement returns the subject of p being where it is.
func (p *pod) placement() subject {
	return subject{kind: aboutPlacement, name: types.NamespacedName(p.account.Value()), node: p.node.Value()}
}

// Interest brings events to those that wait for them.
type interest struct {
	mu        sync.Mutex
	listeners map[subject]map[*listener]struct{}
}

// A listener is told of events about its subjects.
type listener struct {
	subjects []subject
	events   chan struct{} // has one element if there was an event since it was last received from
}

func newInterest() *interest {
	return &interest{listeners: make(map[subject]map[*listener]struct{})}
}

// listen returns a listener. It must be given to drop in the end.
func (n *interest) listen(subjects ...subject) *listener {
	l := &listener{subjects: subjects, events: make(chan struct{}, 1)}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range subjects {
		if n.listeners[s] == nil {
			n.listeners[s] = make(map[*listener]struct{})
		}
		n.listeners[s][l] = struct{}{}
	}
	return l
}

func (n *interest) drop(l *listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range l.subjects {
		delete(n.listeners[s], l)
		if len(n.listeners[s]) == 0 {
			delete(n.listeners, s)
		}
	}
}

// tell wakes those who listen for one of the subjects. What it tells of must
// already be visible to them.
func (n *interest) tell(subjects ...subject) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range subjects {
		for l := range n.listeners[s] {
			l.wake()
		}
	}
}

// tellAll wakes everyone.
func (n *interest) tellAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ls := range n.listeners {
		for l := range ls {
			l.wake()
		}
	}
}

func (l *listener) wake() {
	select {
	case l.events <- struct{}{}:
	default:
	}
}

// touched reports whether there was an event.
func (l *listener) touched() bool { return len(l.events) > 0 }
