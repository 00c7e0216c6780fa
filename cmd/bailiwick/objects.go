package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/k8s/inventory"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// objects are a cluster as kubectl exports it.
type objects struct {
	pods            []corev1.Pod
	nodes, accounts []metav1.ObjectMeta
}

// howToExport is how to make what parseObjects reads.
const howToExport = "kubectl get pods,nodes,serviceaccounts -A -o yaml"

// parseObjects reads the output of [howToExport]: YAML or JSON documents, each
// an object or a List of them.
func parseObjects(data []byte) (*objects, error) {
	o := &objects{}
	for i, doc := range documents(string(data)) {
		raw, err := yaml.YAMLToJSONStrict([]byte(doc.text))
		if err == nil {
			err = o.add(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d, from line %d: %w", i+1, doc.line, err)
		}
	}
	if len(o.pods) == 0 {
		return nil, fmt.Errorf("there is no pod in it; make such a file with: %s", howToExport)
	}
	return o, nil
}

func (o *objects) add(raw json.RawMessage) error {
	var head struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
		Metadata   metav1.ObjectMeta `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		return fmt.Errorf("not an object of Kubernetes: %w; make such a file with: %s", inYAML(err), howToExport)
	}
	if head.APIVersion != "v1" {
		return fmt.Errorf("apiVersion is %q, not v1; make such a file with: %s", short(head.APIVersion), howToExport)
	}
	switch head.Kind {
	case "List", "PodList", "NodeList", "ServiceAccountList":
		for i, item := range head.Items {
			if err := o.add(item); err != nil {
				return fmt.Errorf("item %d: %w", i, err)
			}
		}
	case "Pod":
		var pod corev1.Pod
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &pod); err != nil {
			return err
		}
		o.pods = append(o.pods, pod)
	case "Node":
		o.nodes = append(o.nodes, head.Metadata)
	case "ServiceAccount":
		o.accounts = append(o.accounts, head.Metadata)
	default:
		return fmt.Errorf("kind is %q, neither Pod, Node nor ServiceAccount; make such a file with: %s", short(head.Kind), howToExport)
	}
	return nil
}

// inventory returns what the objects say.
func (o *objects) inventory(now func() time.Time) (*inventory.Export, error) {
	return inventory.FromObjects(o.pods, o.nodes, o.accounts, now)
}

// agentsOn returns the pods of node agents on a node.
func (o *objects) agentsOn(node string, agents []authz.ServiceAccount) []string {
	var names []string
	for _, p := range o.pods {
		if p.Spec.NodeName == node && slices.Contains(agents, accountOf(&p)) {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	return names
}

// caller returns what a token bound to the pod would say.
func (o *objects) caller(pod string) (authz.Caller, error) {
	i := slices.IndexFunc(o.pods, func(p corev1.Pod) bool { return p.Namespace+"/"+p.Name == pod })
	if i < 0 {
		return authz.Caller{}, fmt.Errorf("there is no pod %s", pod)
	}
	p := &o.pods[i]
	sa := accountOf(p)
	c := authz.Caller{ServiceAccount: sa, Pod: p.Name, PodUID: string(p.UID), Node: p.Spec.NodeName}
	for _, a := range o.accounts {
		if a.Namespace == sa.Namespace && a.Name == sa.Name {
			c.ServiceAccountUID = string(a.UID)
		}
	}
	for _, n := range o.nodes {
		if n.Name == c.Node {
			c.NodeUID = string(n.UID)
		}
	}
	if c.ServiceAccountUID == "" {
		return authz.Caller{}, errors.New("there is no service account " + sa.String())
	}
	return c, nil
}

func accountOf(p *corev1.Pod) authz.ServiceAccount {
	return authz.ServiceAccount{Namespace: p.Namespace, Name: p.Spec.ServiceAccountName}
}
