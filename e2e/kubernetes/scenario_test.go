package kubernetes_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
	"github.com/bailiwick-ca/bailiwick/e2e/scenario"
)

// [OPS-4] Everything that the scenarios need is done as an account that may do what
// the code declares, and nothing else: see serve.
func TestScenarios(t *testing.T) {
	all, err := scenario.All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no scenario files")
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) { play(t, s) })
	}
}

// What happens to objects while tokens of theirs are about. These are not among
// the files because the API server has an opinion of them too: a token that it
// refuses must not be worth more here.
func TestTokensOfWhatIsGone(t *testing.T) {
	s, err := scenario.Parse("gone", `
		agent istio-system/ztunnel
		pod istio-system/zt-1 sa=ztunnel node=n1
		pod shop/cart-1       sa=cart    node=n1

		# an account that is deleted takes its pods' identity with it
		as shop/cart-1
		allow own
		delete account shop/cart
		deny caller-gone own
		as istio-system/zt-1
		deny not-on-node spiffe://cluster.local/ns/shop/sa/cart

		# an account that comes back under its name is another one: tokens of the
		# first stay worthless, and what runs under the name may have the identity
		account shop/cart
		allow spiffe://cluster.local/ns/shop/sa/cart
		as shop/cart-1
		allow own
		delete account shop/cart
		account shop/cart
		deny caller-gone own
		as shop/cart-1
		allow own

		# the account of the node agent
		as istio-system/zt-1
		delete account istio-system/ztunnel
		account istio-system/ztunnel
		deny caller-gone spiffe://cluster.local/ns/shop/sa/cart
		as istio-system/zt-1
		allow spiffe://cluster.local/ns/shop/sa/cart

		# a pod that has finished, although its token is good for the API server
		as shop/cart-1
		finish shop/cart-1 Failed
		deny caller-finished own
		as istio-system/zt-1
		deny not-on-node spiffe://cluster.local/ns/shop/sa/cart

		# a pod that came back
		as shop/cart-1
		delete pod shop/cart-1
		pod shop/cart-1 sa=cart node=n1
		deny caller-gone own

		# a node that came back
		as istio-system/zt-1
		allow spiffe://cluster.local/ns/shop/sa/cart
		delete node n1
		node n1
		deny node-mismatch spiffe://cluster.local/ns/shop/sa/cart
		deny node-mismatch own
		as istio-system/zt-1
		allow spiffe://cluster.local/ns/shop/sa/cart
	`)
	if err != nil {
		t.Fatal(err)
	}
	play(t, s)
}

// play makes a scenario's cluster, step by step, and asks a bailiwick that is
// configured as it says.
func play(t *testing.T, s scenario.Scenario) {
	t.Helper()
	c := begin(t)
	c.Node(t, "node-of-nobody") // so that each kind of object is there
	w := &world{t: t, cluster: c, authority: serve(t, c.APIServer, options{
		"nodeAgents":         emptyIfNil(s.Agents),
		"protected":          emptyIfNil(s.Protected),
		"evictedNodes":       s.Evicted,
		"allowUnboundTokens": s.Unbound,
		"hold":               "200ms",
	})}
	var token scenario.Token
	for _, step := range s.Steps {
		w.step = step
		var err error
		if token, err = w.play(step, token); err != nil {
			t.Fatalf("%s (%s): %v", s.Name, step.Case, err)
		}
	}
}

func emptyIfNil(list []string) []string { return append([]string{}, list...) }

// A world is the live cluster, as scenarios see it.
type world struct {
	t         *testing.T
	cluster   *cluster.Cluster
	authority *authority
	step      scenario.Step
	late      time.Time // until when bailiwick may not know what went
}

var _ scenario.World = (*world)(nil)

// tells is how long it may take until bailiwick has been told that something
// went. What came it must know at once, since it asks for what it has not got.
const tells = 2 * time.Second

// play executes a step. What went a moment ago may still be granted, so the
// question is asked again then.
func (w *world) play(s scenario.Step, token scenario.Token) (scenario.Token, error) {
	switch s.Verb {
	case scenario.Finish, scenario.Terminate, scenario.Delete:
		w.late = time.Now().Add(tells)
	}
	for {
		next, err := scenario.Play(w, s, token)
		if err == nil || s.Verb != scenario.Deny || time.Now().After(w.late) {
			return next, err
		}
	}
}

func (w *world) MakeNode(name string) error {
	w.cluster.Node(w.t, name)
	return nil
}

func (w *world) MakeAccount(name string) error {
	namespace, account, _ := strings.Cut(name, "/")
	w.cluster.ServiceAccount(w.t, namespace, account)
	return nil
}

func (w *world) MakePod(p scenario.Pod) error {
	if p.Node != "" && !w.cluster.HasNode(w.t, p.Node) {
		w.cluster.Node(w.t, p.Node)
	}
	if !w.cluster.HasServiceAccount(w.t, p.Namespace, p.Account) {
		w.cluster.ServiceAccount(w.t, p.Namespace, p.Account)
	}
	pod := cluster.Pod{
		Namespace: p.Namespace, Name: p.Name,
		ServiceAccount: p.Account, Node: p.Node,
		Phase: corev1.PodPhase(p.Phase), HostNetwork: p.HostNetwork,
	}
	if p.Mirror {
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "mirror"}
	}
	w.cluster.Pod(w.t, pod)
	return nil
}

func (w *world) SetPhase(p scenario.Pod) error {
	pod, err := w.pod(p.Namespace + "/" + p.Name)
	if err == nil {
		w.cluster.SetPhase(w.t, pod, corev1.PodPhase(p.Phase))
	}
	return err
}

func (w *world) Terminate(p scenario.Pod, grace time.Duration) error {
	pod, err := w.pod(p.Namespace + "/" + p.Name)
	if err == nil {
		w.cluster.DeletePod(w.t, pod, grace)
	}
	return err
}

func (w *world) Delete(kind, name string) error {
	switch kind {
	case "node":
		w.cluster.DeleteNode(w.t, name)
	case "account":
		namespace, account, _ := strings.Cut(name, "/")
		w.cluster.DeleteServiceAccount(w.t, namespace, account)
	case "pod":
		pod, err := w.pod(name)
		if err != nil {
			return err
		}
		w.cluster.DeletePod(w.t, pod, 0)
	default:
		return fmt.Errorf("there are no objects of kind %s", kind)
	}
	return nil
}

// Wait waits: the clock of a live cluster is nobody's to move.
func (w *world) Wait(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-w.t.Context().Done():
		return w.t.Context().Err()
	}
}

func (w *world) Token(kind, name string) (scenario.Token, error) {
	if kind == "account" {
		namespace, account, _ := strings.Cut(name, "/")
		return w.cluster.Token(w.t, namespace, account), nil
	}
	pod, err := w.pod(name)
	if err != nil {
		return nil, err
	}
	return w.cluster.PodToken(w.t, pod), nil
}

func (w *world) Ask(token scenario.Token, want string) (scenario.Answer, error) {
	got := w.authority.ask(w.t, token.(string), want)
	answer := scenario.Answer{Granted: got.identity, Own: orOwn(w.t, "", token.(string))}
	switch got.Code {
	case codes.OK:
	case codes.PermissionDenied, codes.Unauthenticated:
		answer.Reason = got.word
	default:
		return answer, errors.New(got.Code.String() + ": " + got.word)
	}
	return answer, nil
}

func (w *world) pod(name string) (*corev1.Pod, error) {
	namespace, pod, _ := strings.Cut(name, "/")
	return w.cluster.Client().CoreV1().Pods(namespace).Get(w.t.Context(), pod, metav1.GetOptions{})
}
