package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
)

// TestRetryInfo is sent where it is known when to try again, and only there.
func TestRetryInfo(t *testing.T) {
	for _, tt := range []struct {
		out  outcome
		want time.Duration
	}{
		{classify(t.Context(), &overloadError{"x", 3 * time.Second}), 3 * time.Second},
		{classify(t.Context(), errNoAuthority), 0},
	} {
		var got []time.Duration
		for _, d := range tt.out.status("id").Details() {
			if info, ok := d.(*errdetails.RetryInfo); ok {
				got = append(got, info.GetRetryDelay().AsDuration())
			}
		}
		if (tt.want == 0) != (len(got) == 0) || len(got) > 0 && got[0] != tt.want {
			t.Errorf("%v: RetryInfo %v, want %v", tt.out.code, got, tt.want)
		}
	}
	if out := classify(t.Context(), &overloadError{"x", time.Second}); out.code != codes.ResourceExhausted || out.reason != overloaded {
		t.Errorf("an overload is %v (%s)", out.code, out.reason)
	}
}

// TestCodes has an error of every kind, and of every reason.
func TestCodes(t *testing.T) {
	cause := errors.New("why")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Time{})
	defer cancel()
	denied := func(r authz.Reason) error { return authz.Deny(r, "%v", cause) }
	undecided := func(r authz.Reason) error { return &authz.Undecided{Reason: r, Err: cause} }
	for _, tt := range []struct {
		ctx    context.Context
		err    error
		code   codes.Code
		reason string
	}{
		{nil, denied(authz.BadIdentity), codes.PermissionDenied, "bad-identity"},
		{nil, denied(authz.NoNode), codes.PermissionDenied, "no-node"},
		{nil, denied(authz.CallerGone), codes.Unauthenticated, "caller-gone"},
		{nil, denied(authz.CallerDone), codes.Unauthenticated, "caller-finished"},
		{nil, denied(authz.NodeMismatch), codes.PermissionDenied, "node-mismatch"},
		{nil, denied(authz.Evicted), codes.PermissionDenied, "evicted"},
		{nil, denied(authz.NotANodeAgent), codes.PermissionDenied, "not-a-node-agent"},
		{nil, denied(authz.Protected), codes.PermissionDenied, "protected"},
		{nil, denied(authz.NotOnNode), codes.PermissionDenied, "not-on-node"},
		{nil, denied(authz.NoToken), codes.Unauthenticated, "no-token"},
		{nil, denied(authz.BadToken), codes.Unauthenticated, "bad-token"},
		{nil, denied(authz.UnknownIssuer), codes.Unauthenticated, "unknown-issuer"},
		{nil, denied(authz.WrongAudience), codes.Unauthenticated, "wrong-audience"},
		{nil, denied(authz.ExpiredToken), codes.Unauthenticated, "expired-token"},
		{nil, denied(authz.EarlyToken), codes.Unauthenticated, "early-token"},
		{nil, denied(authz.NotPodBound), codes.Unauthenticated, "not-pod-bound"},
		{nil, denied(authz.UnknownKey), codes.Unauthenticated, "unknown-key"},
		{nil, denied(authz.BadSignature), codes.Unauthenticated, "bad-signature"},
		{nil, denied(authz.ReviewRefused), codes.Unauthenticated, "review-refused"},
		{nil, denied(authz.UnknownCluster), codes.Unauthenticated, "unknown-cluster"},
		{cancelled, denied(authz.NotOnNode), codes.PermissionDenied, "not-on-node"},
		{nil, undecided(authz.NotSynced), codes.Unavailable, "not-synced"},
		{nil, undecided(authz.Stale), codes.Unavailable, "stale"},
		{nil, undecided(authz.KeysTooOld), codes.Unavailable, "keys-too-old"},
		{nil, fmt.Errorf("%w: %w", authz.ErrUndecided, cause), codes.Unavailable, "api-trouble"},
		{cancelled, undecided(authz.Stale), codes.Canceled, "cancelled"},
		{late, undecided(authz.Stale), codes.Unavailable, "deadline-passed"},
		{late, cause, codes.Unavailable, "deadline-passed"},
		{nil, &overloadError{"x", time.Second}, codes.ResourceExhausted, "overloaded"},
		{nil, &metadataError{cause}, codes.InvalidArgument, "bad-metadata"},
		{nil, &ca.RequestError{Reason: ca.BadKey, Err: cause}, codes.InvalidArgument, "bad-key"},
		{nil, &ca.IssuerError{Reason: ca.IssuerEarly, Err: cause}, codes.Unavailable, "issuer-not-yet-valid"},
		{nil, errNoAuthority, codes.Unavailable, "no-authority"},
		{nil, errPanic, codes.Internal, "internal"},
		{cancelled, errPanic, codes.Internal, "internal"},
		{late, errNoRecord, codes.Internal, "internal"},
		{nil, cause, codes.Internal, "internal"},
	} {
		ctx := tt.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		if out := classify(ctx, tt.err); out.code != tt.code || out.reason != tt.reason || out.after != 0 && out.reason != "overloaded" {
			t.Errorf("%v (context: %v) is %v (%s), want %v (%s)", tt.err, ctx.Err(), out.code, out.reason, tt.code, tt.reason)
		}
	}
}

// TestOutward has the words for a node agent, and for everybody else.
func TestOutward(t *testing.T) {
	agent := authz.ServiceAccount{Namespace: "mesh", Name: "agent"}
	s := &Server{cfg: Config{NodeAgent: func(sa authz.ServiceAccount) bool { return sa == agent }}}
	for _, tt := range []struct {
		out           outcome
		agents, other string
	}{
		{outcome{code: codes.PermissionDenied, reason: "not-on-node"}, "not-on-node", "denied"},
		{outcome{code: codes.PermissionDenied, reason: "node-mismatch"}, "node-mismatch", "denied"},
		{outcome{code: codes.PermissionDenied, reason: "evicted"}, "denied", "denied"},
		{outcome{code: codes.InvalidArgument, reason: "bad-csr"}, "bad-csr", "bad-csr"},
		{outcome{code: codes.Unauthenticated, reason: "caller-gone"}, "unauthenticated", "unauthenticated"},
		{outcome{code: codes.ResourceExhausted, reason: "overloaded"}, "overloaded, try again", "overloaded, try again"},
		{outcome{code: codes.Unavailable, reason: "stale"}, "cannot tell now, try again", "cannot tell now, try again"},
		{outcome{code: codes.Canceled, reason: "cancelled"}, "cannot tell now, try again", "cannot tell now, try again"},
		{outcome{code: codes.Internal, reason: "internal"}, "internal error", "internal error"},
	} {
		if got := s.outward(tt.out, authz.Caller{ServiceAccount: agent}); got != tt.agents {
			t.Errorf("%v (%s): a node agent reads %q, want %q", tt.out.code, tt.out.reason, got, tt.agents)
		}
		if got := s.outward(tt.out, authz.Caller{}); got != tt.other {
			t.Errorf("%v (%s): others read %q, want %q", tt.out.code, tt.out.reason, got, tt.other)
		}
	}
}
