package inventory

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What is logged of a failure names the next command.
func TestNext(t *testing.T) {
	r := &resource{name: pods}
	gr := schema.GroupResource{Resource: pods}
	for _, test := range []struct {
		op   operation
		err  error
		want string
	}{
		{opWatch, apierrors.NewForbidden(gr, "", errors.New(`User "system:serviceaccount:a:b" cannot`)), "kubectl auth can-i watch pods --all-namespaces --as=system:serviceaccount:a:b"},
		{opProbe, apierrors.NewForbidden(gr, "", errors.New(`User "u" cannot`)), "kubectl auth can-i list pods --all-namespaces --as=u"},
		{opList, apierrors.NewForbidden(gr, "", errors.New("no")), "--as=USER"},
		{opList, apierrors.NewUnauthorized("no"), "our token or kubeconfig"},
		{opList, errors.New("connection refused"), "can be reached from here"},
	} {
		if got := r.next(test.op, test.err); !strings.Contains(got, test.want) {
			t.Errorf("%s, %v: %q, want %q", test.op, test.err, got, test.want)
		}
	}
}
