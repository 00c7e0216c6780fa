package inventory

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// scheduledAndUnfinished selects the pods that can matter. One that finishes
// leaves the selection, which the watch tells as a deletion.
const scheduledAndUnfinished = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

// pageSize is how many objects are in memory at a time where an API server
// offers no streamed lists.
const pageSize = 500

// A source is where the objects of one resource come from.
type source struct {
	kind  runtime.Object // an example, for its type: an event of another must not count as seen
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func podSource(c kubernetes.Interface) source {
	pods := c.CoreV1().Pods(metav1.NamespaceAll)
	return source{
		kind: &corev1.Pod{},
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = scheduledAndUnfinished
			return pods.List(ctx, o)
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = scheduledAndUnfinished
			return pods.Watch(ctx, o)
		},
	}
}

func metadataSource(c metadata.Interface, resource string) source {
	objects := c.Resource(corev1.SchemeGroupVersion.WithResource(resource))
	return source{
		kind: &metav1.PartialObjectMetadata{},
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, o)
		},
		watch: objects.Watch,
	}
}

// follow keeps the store up to date until ctx is done.
func (s *store[R]) follow(ctx context.Context, from source) {
	for ctx.Err() == nil {
		s.followUntilAnew(ctx, from)
	}
}

// followUntilAnew keeps the store up to date until it must be listed from
// nothing, which only a new reflector does.
func (s *store[R]) followUntilAnew(ctx context.Context, from source) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-s.anew:
			stop()
		case <-ctx.Done():
		}
	}()
	log := logr.FromSlogHandler(s.log.Handler())
	r := cache.NewReflectorWithOptions(s.listerWatcher(from), from.kind, s, cache.ReflectorOptions{
		Name:            s.name,
		TypeDescription: s.name,
		Logger:          &log,
	})
	r.RunWithContext(klog.NewContext(ctx, log))
}

// listerWatcher returns what asks from for objects. It notes how that went, and
// when a list began that will prove the age of what it returns.
func (s *store[R]) listerWatcher(from source) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			s.age.lists(s.now(), true)
			all, err := s.list(ctx, from)
			s.endedUnlessDone(ctx, opList, err)
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			streams := o.SendInitialEvents != nil && *o.SendInitialEvents
			if streams {
				// A stream that starts at no version is consistent; one that
				// starts at a version may come from a cache that is no newer.
				s.age.lists(s.now(), o.ResourceVersion == "")
			}
			w, err := from.watch(ctx, o)
			if streams && notOffered(err) {
				s.log.DebugContext(ctx, "the API server offers no streamed lists", slog.Any("error", err))
				return nil, err
			}
			s.endedUnlessDone(ctx, opWatch, err)
			return w, err
		},
	}
}

// list reads all objects, page by page, and makes records of each page before
// it asks for the next: whole pods would need a hundred times the memory. It
// takes no version from the reflector, since with one the API server would send
// all pages at once; so the list is a consistent one.
func (s *store[R]) list(ctx context.Context, from source) (runtime.Object, error) {
	all := &internalversion.List{}
	o := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := from.list(ctx, o)
		if err != nil {
			return nil, err
		}
		m, err := meta.ListAccessor(page)
		if err != nil {
			return nil, err
		}
		err = meta.EachListItem(page, func(o runtime.Object) error {
			r, err := s.record(o)
			all.Items = append(all.Items, listed[R]{r})
			return err
		})
		if err != nil {
			return nil, err
		}
		all.ResourceVersion = m.GetResourceVersion()
		if o.Continue = m.GetContinue(); o.Continue == "" {
			return all, nil
		}
	}
}

// endedUnlessDone notes how an operation ended, unless it is we who ended it,
// or its failure is part of the protocol: a version that the API server no
// longer has makes the reflector list again.
func (s *store[R]) endedUnlessDone(ctx context.Context, op operation, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	s.ended(op, err)
}

// notOffered reports whether the API server did not understand the request for
// a streamed list.
func notOffered(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}
