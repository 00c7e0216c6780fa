package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
)

type explainFlags struct {
	config, kubeconfig, objects, node, identity, as string
}

func newExplain() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain --node NODE --identity ID",
		Short: "Explain who may have an identity, and why not",
		Long: `Explain whether the node agent of a node may have an identity: apply the
server's rules, one after the other, and print what each one looked at.

The facts come from the live cluster, or from objects that were exported from one
with: ` + howToExport + `
The rules come from the server's configuration: name its file with --config. A
server with a service account token also protects its own account, which explain
does not know unless protected names it.

Exit codes: 0 it may, 1 failed, 2 wrong usage, 3 it may not.`,
		Example: `  bailiwick explain --node worker-1 --identity spiffe://cluster.local/ns/shop/sa/cart
  bailiwick explain --objects cluster.yaml --as shop/cart-1`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "the server's configuration `file` (default: all defaults)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: as kubectl finds it)")
	flags.StringVar(&f.objects, "objects", "", "`file` with exported objects, instead of a live cluster")
	flags.StringVar(&f.node, "node", "", "the `node` whose agent asks")
	flags.StringVar(&f.identity, "identity", "", "the SPIFFE `ID` that is asked for (default: the caller's own)")
	flags.StringVar(&f.as, "as", "", "the pod that asks, as `namespace/name` (default: a live node agent on --node)")
	return reports(cmd, func(cmd *cobra.Command, p *printer) error {
		return explain(cmd.Context(), f, p)
	})
}

func explain(ctx context.Context, f explainFlags, p *printer) error {
	if f.node == "" && f.as == "" {
		return &exitError{exitUsage, errors.New("who asks? name a node with --node, or a pod with --as")}
	}
	if f.as != "" && !isPodName(f.as) {
		return &exitError{exitUsage, fmt.Errorf("--as is %q, which is not a pod written as namespace/name\nfind it with: %s get pods -A -o wide", f.as, kubectl(f.kubeconfig))}
	}
	c, err := loadConfig(f.config)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	policy := c.policy(nil, authz.ServiceAccount{}, time.Now)
	o, err := f.load(ctx, c, policy)
	if err != nil {
		return err
	}
	x := &explanation{file: f.config, config: c, kubectl: kubectl(f.kubeconfig), policy: policy, objects: o, now: time.Now()}
	if x.inventory, err = o.inventory(func() time.Time { return x.now }); err != nil {
		return err
	}
	pod, err := x.asker(f.as, f.node)
	if err != nil {
		return err
	}
	r, err := x.report(pod, f.identity)
	if err != nil {
		return err
	}
	if err := p.print(r); err != nil {
		return err
	}
	if r.Answer == denied {
		return &exitError{exitRefused, errSilent}
	}
	return nil
}

// isPodName reports whether text is a namespace, a slash and the name of a pod.
func isPodName(text string) bool {
	namespace, name, _ := strings.Cut(text, "/")
	return len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0
}

// An explanation has what the answer depends on.
type explanation struct {
	file      string // that the rules come from; empty for the defaults
	config    *Config
	kubectl   string // how to ask the same cluster
	policy    *authz.Policy
	objects   *objects
	inventory authz.Inventory
	now       time.Time
}

// steps applies the rules to a request.
func (x *explanation) steps(caller authz.Caller, identity string) ([]authz.Step, error) {
	target, err := x.policy.Target(caller, identity)
	if _, denied := errors.AsType[*authz.Denial](err); err != nil && !denied {
		return nil, err
	}
	facts, err := x.inventory.Look(x.now, authz.Query{Caller: caller, Target: target})
	if err != nil {
		return nil, err
	}
	return x.policy.Explain(x.now, caller, identity, facts), nil
}

// asker returns the pod that asks: the one that is named, which must be on the
// node if that is named too, or else the node's agent.
func (x *explanation) asker(pod, node string) (string, error) {
	if pod == "" {
		return x.agentOn(node)
	}
	caller, err := x.objects.caller(pod)
	if err != nil {
		return "", fmt.Errorf("%w\nsee what there is with: %s get pods,serviceaccounts -A", err, x.kubectl)
	}
	if node != "" && node != caller.Node {
		return "", &exitError{exitUsage, fmt.Errorf("--as names pod %s, which is on node %s, and --node names %s; leave out one of them", pod, printable(orDash(caller.Node)), node)}
	}
	return pod, nil
}

// agentOn returns the node agent of a node. Of several pods, such as one that
// runs and one that it has replaced, it is the one that gets furthest when it
// asks for its own identity.
func (x *explanation) agentOn(node string) (string, error) {
	var best string
	furthest := -1
	for _, pod := range x.objects.agentsOn(node, x.policy.NodeAgents) {
		caller, err := x.objects.caller(pod)
		if err != nil {
			return "", err
		}
		steps, err := x.steps(caller, "")
		if err != nil {
			return "", err
		}
		passed := 0
		for _, s := range steps {
			if s.Denial == nil {
				passed++
			}
		}
		if passed > furthest {
			best, furthest = pod, passed
		}
	}
	if best == "" {
		return "", x.noAgent(node)
	}
	return best, nil
}

func (x *explanation) noAgent(node string) error {
	var names []string
	for _, sa := range x.policy.NodeAgents {
		names = append(names, sa.String())
	}
	there := ""
	if !slices.ContainsFunc(x.objects.nodes, func(n metav1.ObjectMeta) bool { return n.Name == node }) {
		there = ", and there is no such node (see: " + x.kubectl + " get nodes)"
	}
	return fmt.Errorf("no pod of a node agent is on node %q%s; node agents are the pods of: %s\nsee what runs there with: %s get pods -A -o wide --field-selector spec.nodeName=%s\nif the node agent has another account, add it to nodeAgents in the configuration", node, there, strings.Join(names, " "), x.kubectl, shellWord(node))
}

// report applies the rules to a request of the pod.
func (x *explanation) report(pod, identity string) (*explainReport, error) {
	caller, err := x.objects.caller(pod)
	if err != nil {
		return nil, err
	}
	steps, err := x.steps(caller, identity)
	if err != nil {
		return nil, err
	}
	r := &explainReport{Pod: pod, Node: caller.Node, ServiceAccount: caller.ServiceAccount.String(), Identity: identity, Config: x.file, Answer: granted}
	for _, s := range steps {
		r.Rules = append(r.Rules, appliedRule{s.Denial == nil, s.Rule, s.Evidence})
	}
	if d := steps[len(steps)-1].Denial; d != nil {
		r.Answer, r.Reason, r.Detail, r.Next = denied, d.Reason, d.Detail, x.advice(d.Reason, caller, identity)
	}
	return r, nil
}

// The answers of an explanation.
const (
	granted = "granted"
	denied  = "denied"
)

// An explainReport says what came of each rule.
type explainReport struct {
	Pod            string        `json:"pod"` // namespace/name
	Node           string        `json:"node"`
	ServiceAccount string        `json:"serviceAccount"` // namespace/name
	Identity       string        `json:"identity"`       // empty for the pod's own
	Config         string        `json:"config"`         // empty for all defaults
	Rules          []appliedRule `json:"rules"`
	Answer         string        `json:"answer"`
	Reason         authz.Reason  `json:"reason,omitempty"`
	Detail         string        `json:"detail,omitempty"`
	Next           string        `json:"next,omitempty"`
}

type appliedRule struct {
	Holds    bool   `json:"holds"`
	Rule     string `json:"rule"`
	Evidence string `json:"evidence"`
}

func (r *explainReport) text(s *sheet) {
	s.printf("pod %s on node %s, of service account %s, asks for %s\nrules: %s\n\n",
		r.Pod, orDash(r.Node), r.ServiceAccount, orOwn(r.Identity), orDefaults(r.Config))
	rows := [][]cell{row("HOLDS", "RULE", "EVIDENCE")}
	for _, a := range r.Rules {
		holds := cell{"yes", green}
		if !a.Holds {
			holds = cell{"NO", red}
		}
		rows = append(rows, []cell{holds, {text: a.Rule}, {text: a.Evidence}})
	}
	s.table(rows)
	if r.Answer == granted {
		s.printf("\nanswer: %s\n", s.paint(green, granted))
		return
	}
	s.printf("\nanswer: %s (%s): %s\nwhat to do: %s\n", s.paint(red, denied), r.Reason, r.Detail, painted(printableLines(r.Next)))
}

// load returns the objects that the answer depends on.
func (f *explainFlags) load(ctx context.Context, c *Config, policy *authz.Policy) (*objects, error) {
	if f.objects == "" {
		rc, err := userConfig(f.kubeconfig)
		if err != nil {
			return nil, err
		}
		k, err := connect(rc, c)
		if err != nil {
			return nil, err
		}
		o, err := f.fetch(ctx, k.typed, policy)
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, kubeHint(err, kubectl(f.kubeconfig)))
		}
		return o, nil
	}
	data, err := os.ReadFile(f.objects)
	if err != nil {
		return nil, fmt.Errorf("reading exported objects: %w\nmake such a file with: %s", err, howToExport)
	}
	o, err := parseObjects(data)
	if err != nil {
		return nil, fmt.Errorf("exported objects %s: %w", f.objects, err)
	}
	return o, nil
}

// fetch reads them from a live cluster: the node, what runs there, and the
// accounts of that. Nothing but the node's own pods is listed.
func (f *explainFlags) fetch(ctx context.Context, api kubernetes.Interface, policy *authz.Policy) (*objects, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	node := f.node
	if f.as != "" {
		namespace, name, _ := strings.Cut(f.as, "/")
		p, err := api.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("reading pod %s: %w", f.as, err)
		}
		node = p.Spec.NodeName
	}
	list, err := api.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	o := &objects{pods: list.Items}
	switch n, err := api.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); {
	case err == nil:
		o.nodes = append(o.nodes, n.ObjectMeta)
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading node %s: %w", node, err)
	}
	return o, f.fetchAccounts(ctx, api, policy, o)
}

// fetchAccounts adds the accounts of the pods, and the one asked for.
func (f *explainFlags) fetchAccounts(ctx context.Context, api kubernetes.Interface, policy *authz.Policy, o *objects) error {
	wanted := make(map[authz.ServiceAccount]bool)
	for i := range o.pods {
		wanted[accountOf(&o.pods[i])] = true
	}
	if f.identity != "" {
		if target, err := policy.Target(authz.Caller{}, f.identity); err == nil { // which is the same for every caller
			wanted[target] = true
		}
	}
	for sa := range wanted {
		a, err := api.CoreV1().ServiceAccounts(sa.Namespace).Get(ctx, sa.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			o.accounts = append(o.accounts, a.ObjectMeta)
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("reading service account %s: %w", sa, err)
		}
	}
	return nil
}

// advice is what to do about a denial of an identity.
func (x *explanation) advice(r authz.Reason, c authz.Caller, identity string) string {
	namespace, pod := shellWord(c.ServiceAccount.Namespace), shellWord(orDash(c.Pod))
	switch r {
	case authz.BadIdentity:
		return x.identityAdvice(c, identity)
	case authz.CallerGone, authz.CallerDone:
		return fmt.Sprintf("nothing, if the pod is being replaced; else: %s -n %s get pod %s -o wide", x.kubectl, namespace, pod)
	case authz.NoNode:
		return "use a token that is bound to a pod on a node, as a projected volume gives, on Kubernetes 1.32 or later"
	case authz.NodeMismatch:
		return fmt.Sprintf("if the node was re-created, restart the pod, so that it gets a token of the new node: %s -n %s delete pod %s", x.kubectl, namespace, pod)
	case authz.Evicted:
		return "find out why the node was evicted before you remove it from evictedNodes"
	case authz.NotANodeAgent:
		return "if this account is the node agent's, add it to nodeAgents in the configuration: " + c.ServiceAccount.String()
	case authz.Protected:
		return "nothing: no node agent may have this identity; if it should, remove it from protected in the configuration, unless it is the server's own"
	case authz.NotOnNode:
		target, _ := x.policy.Target(c, identity) // which is not what was wrong
		return fmt.Sprintf("see where the account runs: %s -n %s get pods -o wide --field-selector spec.serviceAccountName=%s\nand what runs on the node: %s get pods -A -o wide --field-selector spec.nodeName=%s",
			x.kubectl, shellWord(target.Namespace), shellWord(target.Name), x.kubectl, shellWord(orDash(c.Node)))
	default:
		return "see docs/troubleshooting.md"
	}
}

// identityAdvice tells an identity of another trust domain, which would be good
// there, from one that is good nowhere.
func (x *explanation) identityAdvice(c authz.Caller, identity string) string {
	if id, err := spiffeid.FromString(identity); err == nil {
		there := authz.Policy{TrustDomain: id.TrustDomain()}
		if _, err := there.Target(c, identity); err == nil {
			return fmt.Sprintf("the trust domain is another one; compare it with trustDomain in the configuration, and with the mesh's: %s -n %s get configmap istio -o yaml | grep trustDomain", x.kubectl, shellWord(x.config.IstioNamespace))
		}
	}
	return "the form is wrong: an identity is spiffe://<trust domain>/ns/<namespace>/sa/<account>, and the names in it are such as Kubernetes takes, in small letters; correct it where it is asked for"
}

func orDefaults(config string) string {
	if config == "" {
		return "all defaults"
	}
	return config
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func orOwn(identity string) string {
	if identity == "" {
		return "its own identity"
	}
	return identity
}
