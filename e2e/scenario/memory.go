package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Memory is the cluster part of a [World] that exists only in memory. It
// keeps plain lists: whoever judges with it must do so in their own way. It is
// not safe for concurrent use.
type Memory struct {
	Pods     []MemoryPod
	Nodes    []Object
	Accounts []Object
	Now      time.Time

	made int // how many objects were made, for their UIDs
}

// An Object is a node, or a service account as NS/NAME.
type Object struct {
	Name, UID string
}

// A MemoryPod is a pod with what the API server adds.
type MemoryPod struct {
	Pod
	UID     string
	Deleted time.Time // its deletion timestamp, zero if it has none
}

// Account returns the pod's account as NS/NAME.
func (p MemoryPod) Account() string { return p.Namespace + "/" + p.Pod.Account }

// A MemoryToken is what a token says.
type MemoryToken struct {
	Account, AccountUID string // NS/NAME
	Pod, PodUID         string
	Node, NodeUID       string
}

// MakeNode implements part of [World].
func (m *Memory) MakeNode(name string) error {
	if _, ok := find(m.Nodes, name); ok {
		return fmt.Errorf("node %s exists", name)
	}
	m.Nodes = append(m.Nodes, Object{name, m.uid()})
	return nil
}

// MakeAccount implements part of [World].
func (m *Memory) MakeAccount(name string) error {
	if _, ok := find(m.Accounts, name); ok {
		return fmt.Errorf("account %s exists", name)
	}
	m.Accounts = append(m.Accounts, Object{name, m.uid()})
	return nil
}

// MakePod implements part of [World].
func (m *Memory) MakePod(p Pod) error {
	if m.pod(p.Namespace+"/"+p.Name) >= 0 {
		return fmt.Errorf("pod %s/%s exists", p.Namespace, p.Name)
	}
	pod := MemoryPod{Pod: p, UID: m.uid()}
	if _, ok := find(m.Nodes, p.Node); !ok && p.Node != "" {
		m.Nodes = append(m.Nodes, Object{p.Node, m.uid()})
	}
	if _, ok := find(m.Accounts, pod.Account()); !ok {
		m.Accounts = append(m.Accounts, Object{pod.Account(), m.uid()})
	}
	m.Pods = append(m.Pods, pod)
	return nil
}

// SetPhase implements part of [World].
func (m *Memory) SetPhase(p Pod) error {
	i := m.pod(p.Namespace + "/" + p.Name)
	if i < 0 {
		return fmt.Errorf("no pod %s/%s", p.Namespace, p.Name)
	}
	m.Pods[i].Phase = p.Phase
	return nil
}

// Terminate implements part of [World].
func (m *Memory) Terminate(p Pod, grace time.Duration) error {
	i := m.pod(p.Namespace + "/" + p.Name)
	if i < 0 {
		return fmt.Errorf("no pod %s/%s", p.Namespace, p.Name)
	}
	m.Pods[i].Deleted = m.Now.Add(grace)
	return nil
}

// Delete implements part of [World].
func (m *Memory) Delete(kind, name string) error {
	before := len(m.Pods) + len(m.Nodes) + len(m.Accounts)
	named := func(o Object) bool { return o.Name == name }
	switch kind {
	case "pod":
		if i := m.pod(name); i >= 0 {
			m.Pods = slices.Delete(m.Pods, i, i+1)
		}
	case "node":
		m.Nodes = slices.DeleteFunc(m.Nodes, named)
	case "account":
		m.Accounts = slices.DeleteFunc(m.Accounts, named)
	}
	if before == len(m.Pods)+len(m.Nodes)+len(m.Accounts) {
		return fmt.Errorf("no %s %s", kind, name)
	}
	return nil
}

// Wait implements part of [World].
func (m *Memory) Wait(d time.Duration) error {
	m.Now = m.Now.Add(d)
	return nil
}

// Token says what a token taken now would say. As in Kubernetes, it names the
// pod's node, and the node's UID only if there is a Node object.
func (m *Memory) Token(kind, name string) (MemoryToken, error) {
	account := name
	t := MemoryToken{}
	if kind == "pod" {
		i := m.pod(name)
		if i < 0 {
			return t, fmt.Errorf("no pod %s", name)
		}
		p := m.Pods[i]
		account = p.Account()
		node, _ := find(m.Nodes, p.Node)
		t.Pod, t.PodUID, t.Node, t.NodeUID = p.Name, p.UID, p.Node, node.UID
	}
	a, ok := find(m.Accounts, account)
	if !ok {
		return t, fmt.Errorf("no account %s", account)
	}
	t.Account, t.AccountUID = a.Name, a.UID
	return t, nil
}

func (m *Memory) uid() string {
	m.made++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", m.made)
}

func (m *Memory) pod(name string) int {
	return slices.IndexFunc(m.Pods, func(p MemoryPod) bool {
		namespace, rest, _ := strings.Cut(name, "/")
		return p.Namespace == namespace && p.Name == rest
	})
}

func find(objects []Object, name string) (Object, bool) {
	i := slices.IndexFunc(objects, func(o Object) bool { return o.Name == name })
	if i < 0 {
		return Object{}, false
	}
	return objects[i], true
}
