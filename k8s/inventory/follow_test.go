package inventory

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// A podServer is the API's pods, as a reflector meets them.
type podServer struct {
	mu      sync.Mutex
	pods    []*corev1.Pod
	version string
	streams bool // it offers streamed lists
	refuse  error
	open    *watch.FakeWatcher
	lists   []metav1.ListOptions
	watches []metav1.ListOptions
}

func (s *podServer) source() source {
	return source{kind: &corev1.Pod{}, list: s.list, watch: s.watch}
}

// list returns one pod a page.
func (s *podServer) list(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, o)
	l := &corev1.PodList{}
	l.ResourceVersion = s.version
	from := len(o.Continue)
	if from < len(s.pods) {
		l.Items = append(l.Items, *s.pods[from])
	}
	if from+1 < len(s.pods) {
		l.Continue = o.Continue + "+"
	}
	return l, s.refuse
}

func (s *podServer) watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = append(s.watches, o)
	if s.refuse != nil {
		return nil, s.refuse
	}
	if o.SendInitialEvents == nil {
		s.open = watch.NewFake()
		return s.open, nil
	}
	if !s.streams {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	s.open = watch.NewFakeWithChanSize(len(s.pods)+1, false)
	for _, o := range s.pods {
		s.open.Add(o)
	}
	s.open.Action(watch.Bookmark, bookmark(s.version, "true"))
	return s.open, nil
}

func bookmark(version, end string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: version,
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: end},
	}}
}

func versioned(o *corev1.Pod, version string) *corev1.Pod {
	o.ResourceVersion = version
	return o
}

// following runs f while the pods are followed.
func following(t *testing.T, s *podServer, f func(t *testing.T, v *Inventory)) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		v := newTestInventory(t, func(c *Config) { c.Logger = textLogger(&log) })
		v.sync(t)
		v.pods = podStore(newResource(pods, v.config.Logger, time.Now), v.index, v.interest)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan bool)
		go func() {
			v.pods.follow(ctx, s.source())
			close(done)
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		f(t, v)
		cancel()
		<-done
		if strings.Contains(log.String(), "failed") {
			t.Errorf("nothing was wrong, and this is in the log:\n%s", log.String())
		}
	})
}

func bothWays(t *testing.T, f func(t *testing.T, v *Inventory, s *podServer)) {
	for name, streams := range map[string]bool{"streamed list": true, "list in pages": false} {
		t.Run(name, func(t *testing.T) {
			s := &podServer{streams: streams, version: "100", pods: []*corev1.Pod{
				podObject("istio-system", "zt-1", "ztunnel", "n1", "p-zt-1"),
				podObject("shop", "cart-1", "cart", "n1", "p-cart-1"),
				podObject("shop", "cart-m", "cart", "n1", "p-cart-m", mirror),
			}}
			following(t, s, func(t *testing.T, v *Inventory) { f(t, v, s) })
		})
	}
}

func live1(v *Inventory) int {
	q := cart()
	return v.index.facts(time.Now(), &q).Live
}

func TestAReflectorWritesIntoTheIndex(t *testing.T) {
	bothWays(t, func(t *testing.T, v *Inventory, s *podServer) {
		began := v.pods.age.since()
		if !v.pods.synced.Load() || live1(v) != 1 || time.Since(began) != time.Second {
			t.Fatalf("synced: %v, live pods: %d, proven %v ago", v.pods.synced.Load(), live1(v), time.Since(began))
		}
		s.open.Add(versioned(podObject("shop", "cart-2", "cart", "n1", "p-cart-2"), "101"))
		synctest.Wait()
		if live1(v) != 2 {
			t.Errorf("%d live pods after one came", live1(v))
		}
		s.open.Modify(versioned(podObject("shop", "cart-2", "cart", "n2", "p-cart-3"), "102"))
		s.open.Delete(versioned(podObject("shop", "cart-1", "cart", "n1", "p-cart-1"), "103"))
		synctest.Wait()
		if live1(v) != 0 {
			t.Errorf("%d live pods after one went and one moved", live1(v))
		}

		// Events and bookmarks carry the version that a read waits for.
		must(t, v.pods.age.saw(read{began.Add(1), "103"}))
		must(t, v.pods.age.saw(read{began.Add(2), "110"}))
		if got := v.pods.age.since(); !got.Equal(began.Add(1)) {
			t.Errorf("proven as of %v by an event", got.Sub(began))
		}
		s.open.Action(watch.Bookmark, bookmark("110", ""))
		synctest.Wait()
		if got := v.pods.age.since(); !got.Equal(began.Add(2)) {
			t.Errorf("proven as of %v by a bookmark", got.Sub(began))
		}
	})
}

// NODE-5: what is deleted while the watch is broken is gone after the relist.
func TestNODE5ADeletionSeenOnlyThroughARelist(t *testing.T) {
	bothWays(t, func(t *testing.T, v *Inventory, s *podServer) {
		s.mu.Lock()
		s.pods, s.version = s.pods[:1], "200"
		s.mu.Unlock()
		s.open.Error(&apierrors.NewResourceExpired("too old").ErrStatus)
		time.Sleep(time.Minute)
		synctest.Wait()
		if live1(v) != 0 {
			t.Error("the pod is still there")
		}
		if n, _, _ := v.index.sizes(); n != 1 {
			t.Errorf("%d pods are left, want 1", n)
		}
		// A streamed list that starts at a version proves nothing; one in pages
		// is always consistent.
		if proven := time.Since(v.pods.age.since()) < time.Minute+time.Second; proven == s.streams {
			t.Errorf("proven anew: %v", proven)
		}
		c := &liveCluster{pods: []*pod{newPod(podObject("istio-system", "zt-1", "ztunnel", "n1", "p-zt-1"))}}
		v.live.api = c.api()
		authorize(t, v, authz.NotOnNode, time.Second)
		time.Sleep(2 * time.Second) // whoever serves live reads goes home
	})
}

// NODE-5: the same holds for nodes and accounts.
func TestNODE5ARelistIsAllThereIs(t *testing.T) {
	v := newTestInventory(t)
	v.sync(t)
	q := cart()
	if f := v.index.facts(noon(), &q); f.Node.UID == "" || f.CallerAccount.UID == "" || f.TargetAccount.UID == "" {
		t.Fatalf("not there before: %+v", f)
	}
	must(t, v.nodes.Replace([]any{metaObject("", "n2", "u-n2")}, "200"))
	must(t, v.accounts.Replace([]any{metaObject("istio-system", "ztunnel", "a-ztunnel")}, "200"))
	if f := v.index.facts(noon(), &q); f.Node.UID != "" || f.CallerAccount.UID == "" || f.TargetAccount.UID != "" {
		t.Errorf("after lists without the node and the account: %+v", f)
	}
}

// A store that was restored from a backup, without a pod that we have seen: the
// next probe notices, nothing is proven until everything was listed from nothing,
// and then the pod is gone.
func TestAfterARestoreEverythingIsListedAgain(t *testing.T) {
	bothWays(t, func(t *testing.T, v *Inventory, s *podServer) {
		s.mu.Lock()
		s.pods, s.version = s.pods[:1], "50"
		s.mu.Unlock()
		if live1(v) != 1 {
			t.Fatal("the pod is not there before")
		}
		_ = v.pods.probeOnce(t.Context(), time.Second, func(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
			return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "50"}}, nil
		})
		began := time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		if live1(v) != 0 {
			t.Error("the pod is still there")
		}
		if since := v.pods.age.since(); since.Before(began) || v.pods.age.at() != "50" {
			t.Errorf("proven as of %v, at version %s", since.Sub(began), v.pods.age.at())
		}
	})
}

// NODE-5: a tombstone may have the last state or only a key, and neither may
// make us panic.
func TestNODE5TombstonesDelete(t *testing.T) {
	pod := podObject("shop", "cart-1", "cart", "n1", "p-cart-1")
	tests := []struct {
		name    string
		deleted any
		live    int
		fails   bool
	}{
		{"the object", pod, 0, false},
		{"the object, under another UID", podObject("shop", "cart-1", "cart", "n1", "other"), 0, false},
		{"a tombstone with the object", cache.DeletedFinalStateUnknown{Key: "shop/cart-1", Obj: pod}, 0, false},
		{"a tombstone with only a key", cache.DeletedFinalStateUnknown{Key: "shop/cart-1"}, 0, false},
		{"a tombstone with another kind of object", cache.DeletedFinalStateUnknown{Key: "shop/cart-1", Obj: 7}, 0, false},
		{"a tombstone of what we never had", cache.DeletedFinalStateUnknown{Key: "shop/cart-9"}, 1, false},
		{"a tombstone without a key", cache.DeletedFinalStateUnknown{}, 1, false},
		{"a tombstone with a key that is none", cache.DeletedFinalStateUnknown{Key: "a/b/c"}, 1, true},
		{"nothing", nil, 1, true},
		{"something else", "shop/cart-1", 1, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := newTestInventory(t)
			must(t, v.pods.Add(pod))
			if err := v.pods.Delete(test.deleted); (err != nil) != test.fails {
				t.Errorf("error %v", err)
			}
			q := cart()
			if n := v.index.facts(noon(), &q).Live; n != test.live {
				t.Errorf("%d live pods, want %d", n, test.live)
			}
		})
	}
}

func TestObjectsOfAnotherKindAreRefused(t *testing.T) {
	v := newTestInventory(t)
	for _, o := range []any{nil, 7, &corev1.Node{}, corev1.Pod{}} {
		for name, err := range map[string]error{
			"pods": v.pods.Add(o), "nodes": v.nodes.Update(o), "accounts": v.accounts.Add(o), "a list": v.pods.Replace([]any{o}, "1"),
		} {
			if err == nil {
				t.Errorf("%s: a %T is accepted", name, o)
			}
		}
	}
	if v.pods.synced.Load() {
		t.Error("a list that failed counts as one")
	}
}

// Pages are small however the reflector asks, and name no version: with one,
// API servers send everything at once.
func TestAListInPagesIsConsistentAndSmall(t *testing.T) {
	bothWays(t, func(t *testing.T, _ *Inventory, s *podServer) {
		want := 3
		if s.streams {
			want = 0
		}
		if len(s.lists) != want {
			t.Errorf("%d pages, want %d", len(s.lists), want)
		}
		for _, o := range s.lists {
			if o.Limit != pageSize || o.ResourceVersion != "" {
				t.Errorf("a page was asked for with %+v", o)
			}
		}
	})
}

func TestWhatIsKnownAlreadyIsKeptOnce(t *testing.T) {
	v := newTestInventory(t)
	o := podObject("shop", "cart-1", "cart", "n1", "p-cart-1")
	must(t, v.pods.Add(o))
	transform := v.pods.Transformer()
	same, err := transform(o.DeepCopy())
	must(t, err)
	if same != v.index.pod(podKey("shop/cart-1")) {
		t.Error("a second record was made of the same pod")
	}
	again, err := transform(same)
	must(t, err)
	if again != same {
		t.Error("a record was not taken as it is")
	}
	o.Spec.NodeName = "n2"
	if other, err := transform(o); err != nil || other == same {
		t.Errorf("a pod that changed is taken for the same (%v)", err)
	}
}

// withoutErrorHandlers takes them away for a test: one of them waits until a
// moment after the error before, which was in another time than the bubble's.
func withoutErrorHandlers(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
}

// An event of another kind is no event: its version was not reached.
func TestAnEventOfAnotherKindDoesNotCountAsSeen(t *testing.T) {
	withoutErrorHandlers(t)
	bothWays(t, func(t *testing.T, v *Inventory, s *podServer) {
		s.open.Modify(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "110"}})
		synctest.Wait()
		if got := v.pods.age.at(); got != "100" {
			t.Errorf("the watch has reached version %s, want 100", got)
		}
	})
	c := newTestInventory(t).config
	for name, tt := range map[string]struct {
		source source
		kind   runtime.Object
	}{
		pods:            {podSource(c.Client), &corev1.Pod{}},
		nodes:           {metadataSource(c.Metadata, nodes), &metav1.PartialObjectMetadata{}},
		serviceAccounts: {metadataSource(c.Metadata, serviceAccounts), &metav1.PartialObjectMetadata{}},
	} {
		if diff := cmp.Diff(tt.kind, tt.source.kind); diff != "" {
			t.Errorf("the example of %s (-want +got):\n%s", name, diff)
		}
	}
}

func TestFaultsSayWhatToDoUntilTheyAreCured(t *testing.T) {
	withoutErrorHandlers(t)
	tests := []struct {
		name string
		err  error
		cure string
	}{
		{"forbidden", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no")), "ClusterRole"},
		{"unauthorized", apierrors.NewUnauthorized("who are you"), "kubeconfig"},
		{"broken", errors.New("broken pipe"), "reached"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &podServer{streams: true, version: "100", refuse: test.err}
			var log strings.Builder
			synctest.Test(t, func(t *testing.T) {
				v := newTestInventory(t, func(c *Config) { c.Logger = textLogger(&log) })
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan bool)
				go func() { v.pods.follow(ctx, s.source()); close(done) }()
				time.Sleep(10 * time.Minute)
				if st := v.Status()[0]; st.Resource != "pods" || st.Synced || !errors.Is(st.Err, test.err) || st.ErrAt.IsZero() {
					t.Errorf("%+v", st)
				}
				for text, want := range map[string]int{test.cure: 2, "operation=list": 1, "operation=watch": 1} {
					if n := strings.Count(log.String(), text); n != want {
						t.Errorf("%q is logged %d times, want %d:\n%s", text, n, want, log.String())
					}
				}
				s.mu.Lock()
				s.refuse = nil
				s.mu.Unlock()
				time.Sleep(2 * time.Minute)
				if st := v.Status()[0]; !st.Synced || st.Err != nil || !st.ErrAt.IsZero() {
					t.Errorf("%+v", st)
				}
				cancel()
				<-done
			})
		})
	}
}

func TestProbesAreConsistentReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		v := newTestInventory(t, func(c *Config) { c.Logger = textLogger(&log) })
		v.sync(t)
		r := v.pods.resource
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var asked []metav1.ListOptions
		var fail error
		hang := false
		probe := func(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
			mu.Lock()
			asked = append(asked, o)
			err, hangs := fail, hang
			mu.Unlock()
			if hangs {
				<-ctx.Done()
			}
			time.Sleep(time.Second)
			return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}}, errors.Join(err, ctx.Err())
		}
		set := func(err error, hangs bool) {
			mu.Lock()
			defer mu.Unlock()
			fail, hang = err, hangs
		}
		done := make(chan bool)
		go func() { r.probe(ctx, 30*time.Second, probe); close(done) }()
		start := time.Now()
		age := func(want time.Duration) {
			t.Helper()
			if got := r.age.since().Sub(start); got != want {
				t.Errorf("proven as of %v, want %v", got, want)
			}
		}
		time.Sleep(31*time.Second + 1)
		age(30 * time.Second) // when it began, not when it ended
		broken := errors.New("broken pipe")
		set(broken, false)
		time.Sleep(30 * time.Second)
		age(30 * time.Second)
		if st := v.Status()[0]; !errors.Is(st.Err, broken) {
			t.Errorf("the fault is %v", st.Err)
		}
		set(nil, true)
		time.Sleep(60 * time.Second)
		age(30 * time.Second)
		set(nil, false)
		time.Sleep(60 * time.Second)
		if st := v.Status()[0]; st.Err != nil || time.Since(st.Proven) > 32*time.Second {
			t.Errorf("%+v", st)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, o := range asked {
			if o.Limit != 1 || o.ResourceVersion != "" {
				t.Errorf("asked with %+v", o)
			}
		}
		cancel()
		<-done
		if n := strings.Count(log.String(), "operation=probe"); n != 1 {
			t.Errorf("the fault is logged as a probe's %d times, want once:\n%s", n, log.String())
		}
	})
}

// An operation that we ended, and a version that is no longer there, are no
// faults.
func TestWhatIsPartOfTheProtocolIsNoFault(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	broken := errors.New("broken pipe")
	for _, tt := range []struct {
		name string
		ctx  context.Context
		err  error
		want error
	}{
		{"it went well", t.Context(), nil, nil},
		{"the version has expired", t.Context(), apierrors.NewResourceExpired("too old"), nil},
		{"the version is gone", t.Context(), &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonGone}}, nil},
		{"we are done", done, broken, nil},
		{"it failed", t.Context(), broken, broken},
	} {
		v := newTestInventory(t)
		v.pods.endedUnlessDone(tt.ctx, opWatch, tt.err)
		if got := v.pods.lastFault().err; got != tt.want { //nolint:errorlint // the very error
			t.Errorf("%s: the fault is %v, want %v", tt.name, got, tt.want)
		}
	}
}

func podKey(s string) (k struct{ Namespace, Name string }) {
	k.Namespace, k.Name, _ = strings.Cut(s, "/")
	return k
}
