package inventory

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A fleet is a cluster of a size. Every node has its agent and some more pods.
type fleet struct{ nodes, pods int }

const (
	fleetNamespaces = 400
	fleetAccounts   = 5 // in each namespace
)

func bigFleet() fleet { return fleet{5000, 200_000} }

// pod returns the i-th pod, as an API server would send it.
func (f fleet) pod(i int) *corev1.Pod {
	uid := fmt.Sprintf("%08x-97a4-4c5d-9d1e-3f0f8a2b7c6d", i)
	node := nodeName(i % f.nodes)
	if i < f.nodes {
		return decorate(podObject("istio-system", fmt.Sprintf("ztunnel-%05x", i), "ztunnel", node, uid))
	}
	ns, sa := fleetAccount(i)
	return decorate(podObject(ns, fmt.Sprintf("checkout-api-7d4b9c6f5d-%05x", i), sa, node, uid))
}

func nodeName(i int) string {
	return fmt.Sprintf("ip-10-%d-%d-17.eu-central-1.compute.internal", i/250, i%250)
}

// fleetAccount returns the account of the i-th pod. Neighbours have nothing in
// common, nor have the pods of a node.
func fleetAccount(i int) (namespace, name string) { return accountName(i * 2654435761 >> 8) }

func accountName(i int) (namespace, name string) {
	return fmt.Sprintf("team-%d", i%fleetNamespaces), fmt.Sprintf("service-%d", i/fleetNamespaces%fleetAccounts)
}

// decorate adds some of what pods have and nobody here needs.
func decorate(o *corev1.Pod) *corev1.Pod {
	o.Labels = map[string]string{"app": o.Name, "pod-template-hash": "7d4b9c6f5d", "istio.io/dataplane-mode": "ambient"}
	o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 1500))}}
	for i := range 3 {
		o.Spec.Containers = append(o.Spec.Containers, corev1.Container{
			Name: fmt.Sprint("c", i), Image: "registry.example/" + o.Name, Env: make([]corev1.EnvVar, 10), VolumeMounts: make([]corev1.VolumeMount, 4),
		})
		o.Status.ContainerStatuses = append(o.Status.ContainerStatuses, corev1.ContainerStatus{Name: fmt.Sprint("c", i), ImageID: o.Name})
	}
	return o
}

// fill lists the fleet's nodes and accounts.
func (f fleet) fill(t testing.TB, v *Inventory) {
	t.Helper()
	for _, r := range v.resources() {
		r.age.lists(v.now(), true)
	}
	var nodes, accounts []any
	for i := range f.nodes {
		nodes = append(nodes, metaObject("", nodeName(i), fmt.Sprintf("u-%d", i)))
	}
	accounts = append(accounts, metaObject("istio-system", "ztunnel", "a-ztunnel"))
	for i := range fleetNamespaces * fleetAccounts {
		ns, sa := accountName(i)
		accounts = append(accounts, metaObject(ns, sa, fmt.Sprintf("a-%d", i)))
	}
	must(t, v.nodes.Replace(nodes, "1"))
	must(t, v.accounts.Replace(accounts, "1"))
}

func (f fleet) inventory(t testing.TB) *Inventory {
	v := newTestInventory(t)
	f.fill(t, v)
	records := make([]any, f.pods)
	for i := range records {
		records[i] = newPod(f.pod(i))
	}
	must(t, v.pods.Replace(records, "1"))
	return v
}

// requests returns what agents all over the fleet may ask for.
func (f fleet) requests() []authz.Query {
	all := make([]authz.Query, 4096)
	for k := range all {
		i := f.nodes + (k*7919)%(f.pods-f.nodes)
		agent := f.pod(i % f.nodes)
		ns, sa := fleetAccount(i)
		all[k] = authz.Query{
			Caller: authz.Caller{
				ServiceAccount:    authz.ServiceAccount{Namespace: "istio-system", Name: "ztunnel"},
				ServiceAccountUID: "a-ztunnel",
				Pod:               agent.Name, PodUID: string(agent.UID),
				Node: agent.Spec.NodeName, NodeUID: fmt.Sprintf("u-%d", i%f.nodes),
			},
			Target: authz.ServiceAccount{Namespace: ns, Name: sa},
		}
	}
	return all
}

func BenchmarkLook(b *testing.B) {
	f := bigFleet()
	v := f.inventory(b)
	requests := f.requests()
	now := time.Now()

	b.Run("Look", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if got, err := v.Look(now, requests[i%len(requests)]); err != nil || got.Live == 0 {
				b.Fatal(got, err)
			}
		}
	})
	b.Run("Look, in parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				if got, err := v.Look(now, requests[i%len(requests)]); err != nil || got.Live == 0 {
					b.Error(got, err)
				}
			}
		})
	})
	p := authz.Policy{
		TrustDomain: spiffeid.RequireTrustDomainFromString("cluster.local"),
		NodeAgents:  []authz.ServiceAccount{{Namespace: "istio-system", Name: "ztunnel"}},
		Inventory:   v,
		Now:         func() time.Time { return now },
	}
	want := make([]string, len(requests))
	for i, q := range requests {
		want[i] = fmt.Sprintf("spiffe://cluster.local/ns/%s/sa/%s", q.Target.Namespace, q.Target.Name)
	}
	ctx := context.Background()
	b.Run("Authorize", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			k := i % len(requests)
			if _, err := p.Authorize(ctx, requests[k].Caller, want[k]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkPodEvent is an event that moves a pod to another node and back.
func BenchmarkPodEvent(b *testing.B) {
	f := bigFleet()
	v := f.inventory(b)
	var here, there []*corev1.Pod
	for i := range 1000 {
		o := f.pod(f.nodes + i*97)
		here = append(here, o.DeepCopy())
		o.Spec.NodeName = nodeName(i)
		there = append(there, o)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		o := here[i%1000]
		if i/1000%2 == 0 {
			o = there[i%1000]
		}
		if err := v.pods.Update(o); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkListing reports the live heap for each pod once it is listed, and
// how many times that the live heap is at its peak: during the first list, in
// a stream or in pages, and during another one later.
func BenchmarkListing(b *testing.B) {
	for b.Loop() {
		for _, streams := range []bool{true, false} {
			measure(b, bigFleet(), streams).report(b, fmt.Sprintf("streams=%v", streams))
		}
	}
}

func TestAListNeedsLittleMemory(t *testing.T) {
	f := fleet{nodes: 500, pods: 20_000}
	for _, streams := range []bool{true, false} {
		m := measure(t, f, streams)
		if m.perPod > 400 {
			t.Errorf("%.0f bytes for a pod", m.perPod)
		}
		most := 2.0
		if !streams {
			// One page that is read and one that is not yet collected are as
			// big in any cluster; in this one they count.
			most += 2 * pageSize * 8 << 10 / (m.perPod * float64(f.pods))
		}
		if m.first > most || m.again > most {
			t.Errorf("streams=%v: the peak is %.2f times the steady heap in the first list and %.2f in the next, want %.2f at most", streams, m.first, m.again, most)
		}
	}
}

type memoryUse struct {
	perPod       float64
	first, again float64 // the peak during a list, by the steady heap
}

func (m memoryUse) report(b *testing.B, unit string) {
	b.ReportMetric(m.perPod, "B/pod,"+unit)
	b.ReportMetric(m.first, "first/steady,"+unit)
	b.ReportMetric(m.again, "again/steady,"+unit)
}

// measure lets a reflector list the fleet's pods twice.
func measure(t testing.TB, f fleet, streams bool) memoryUse {
	t.Helper()
	// Collect so often that what is not needed is not counted.
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	v := newTestInventory(t)
	empty := heap()
	f.fill(t, v)
	server := &fleetServer{fleet: f, streams: streams, watches: make(chan watch.Interface)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan bool)
	peak := peakHeap()
	go func() {
		v.pods.follow(ctx, server.source())
		close(done)
	}()
	live := server.listed(t)
	first := peak() - empty
	steady := heap() - empty

	peak = peakHeap()
	live.Error(&apierrors.NewResourceExpired("too old").ErrStatus)
	server.listed(t)
	again := peak() - empty
	if n, _, _ := v.index.sizes(); n != f.pods {
		t.Fatalf("%d pods", n)
	}
	cancel()
	<-done
	runtime.KeepAlive(v)
	return memoryUse{
		perPod: float64(steady) / float64(f.pods),
		first:  float64(first) / float64(steady),
		again:  float64(again) / float64(steady),
	}
}

// peakHeap watches the heap until the returned function is called, which
// returns the most that a collection left alive.
func peakHeap() func() int64 {
	stop, most := make(chan bool), make(chan int64)
	go func() {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		var max uint64
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				most <- int64(max)
				return
			case <-tick.C:
				metrics.Read(sample)
				if sample[0].Value.Uint64() > max {
					max = sample[0].Value.Uint64()
				}
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-most
	}
}
