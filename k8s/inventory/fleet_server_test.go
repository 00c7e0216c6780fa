package inventory

import (
	"context"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// A fleetServer sends the pods of a fleet, each made when it is due, so that it
// needs no memory itself.
type fleetServer struct {
	fleet   fleet
	streams bool
	watches chan watch.Interface // of those who have listed everything
}

func (s *fleetServer) source() source {
	return source{kind: &corev1.Pod{}, list: s.list, watch: s.watch}
}

// listed waits until a list is complete, and returns the watch that follows it.
func (s *fleetServer) listed(t testing.TB) *watch.FakeWatcher {
	t.Helper()
	select {
	case w := <-s.watches:
		return w.(*watch.FakeWatcher)
	case <-t.Context().Done():
		t.Fatal("the list is not complete in time")
		return nil
	}
}

func (s *fleetServer) list(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	l := &corev1.PodList{}
	l.ResourceVersion = "100"
	from, _ := strconv.Atoi(o.Continue)
	for i := from; i < min(from+int(o.Limit), s.fleet.pods); i++ {
		l.Items = append(l.Items, *s.fleet.pod(i))
	}
	if next := from + int(o.Limit); next < s.fleet.pods {
		l.Continue = strconv.Itoa(next)
	}
	return l, nil
}

func (s *fleetServer) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w := watch.NewFake()
	if o.SendInitialEvents == nil {
		go func() { s.watches <- w }()
		return w, nil
	}
	if !s.streams {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	go func() {
		for i := range s.fleet.pods {
			w.Add(s.fleet.pod(i))
		}
		w.Action(watch.Bookmark, bookmark("100", "true"))
		// This event is taken when the list has been put into the index.
		w.Action(watch.Bookmark, bookmark("101", ""))
		s.watches <- w
	}()
	return w, nil
}
