package inventory

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// probe makes a consistent read every so often, until ctx is done. One object
// is enough: the version that comes with it is the whole store's.
//
// The first read is due only after the first interval, since a first list is
// its own proof.
func (r *resource) probe(ctx context.Context, every time.Duration, list func(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		err := r.probeOnce(ctx, every, list)
		if ctx.Err() == nil {
			r.ended(opProbe, err)
		}
	}
}

func (r *resource) probeOnce(ctx context.Context, limit time.Duration, list func(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began, reached := r.now(), r.age.at()
	// No version is asked for: with one, a cache might answer.
	l, err := list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	got := read{began: began, version: l.ResourceVersion}
	if r.age.wentBack(reached, got) {
		r.startAnew()
		return fmt.Errorf("the store is at version %s, and the watch had reached %s: it was restored from a backup, and everything is listed again", got.version, reached)
	}
	return r.age.saw(got)
}
