package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The reasons that are this package's own; those of the rules are in authz,
// those of the CSR and the issuer in ca.
const (
	badMetadata = "bad-metadata" // ImpersonatedIdentity is not a string, or empty
	overloaded  = "overloaded"   // too many requests of this node, or in all
	cancelled   = "cancelled"    // the client went away
	noAuthority = "no-authority" // nothing to sign with
	internal    = "internal"     // a fault of ours
)

// errorDomain is the domain of google.rpc.ErrorInfo.
const errorDomain = "bailiwick"

// An outcome is what came of a request: for whom, and in which words.
type outcome struct {
	code    codes.Code
	reason  string        // for the operator: metric and audit record; "" if issued
	outward string        // for the caller
	after   time.Duration // when to try again; 0 says nothing of it
}

// outcome is the one place where errors become codes and words.
func (s *Server) outcome(ctx context.Context, r *record, err error) outcome {
	if err == nil {
		return outcome{code: codes.OK}
	}
	r.err = err
	out := classify(ctx, err)
	out.outward = s.outward(out, r.caller)
	return out
}

func classify(ctx context.Context, err error) outcome {
	if d, ok := errors.AsType[*authz.Denial](err); ok {
		return outcome{code: denialCode(d.Reason), reason: string(d.Reason)}
	}
	if e, ok := errors.AsType[*overloadError](err); ok {
		return outcome{code: codes.ResourceExhausted, reason: overloaded, after: e.after}
	}
	if _, ok := errors.AsType[*metadataError](err); ok {
		return outcome{code: codes.InvalidArgument, reason: badMetadata}
	}
	if e, ok := errors.AsType[*ca.RequestError](err); ok {
		return outcome{code: codes.InvalidArgument, reason: string(e.Reason)}
	}
	if e, ok := errors.AsType[*ca.IssuerError](err); ok {
		return outcome{code: codes.Unavailable, reason: string(e.Reason)}
	}
	return undecided(ctx, err)
}

// undecided classifies what is neither a denial nor the caller's fault.
func undecided(ctx context.Context, err error) outcome {
	switch u, ok := errors.AsType[*authz.Undecided](err); {
	case errors.Is(err, errPanic), errors.Is(err, errNoRecord): // before the context, which may have ended since
		return outcome{code: codes.Internal, reason: internal}
	case errors.Is(ctx.Err(), context.Canceled):
		return outcome{code: codes.Canceled, reason: cancelled}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return outcome{code: codes.Unavailable, reason: string(authz.DeadlinePassed)}
	case ok:
		return outcome{code: codes.Unavailable, reason: string(u.Reason)}
	case errors.Is(err, authz.ErrUndecided):
		return outcome{code: codes.Unavailable, reason: string(authz.APITrouble)}
	case errors.Is(err, errNoAuthority):
		return outcome{code: codes.Unavailable, reason: noAuthority}
	default:
		return outcome{code: codes.Internal, reason: internal}
	}
}

// denialCode tells a caller that is not who it says from one that asks for too
// much.
func denialCode(r authz.Reason) codes.Code {
	switch r {
	case authz.BadIdentity, authz.NoNode, authz.NodeMismatch, authz.Evicted,
		authz.NotANodeAgent, authz.Protected, authz.NotOnNode:
		return codes.PermissionDenied
	default:
		return codes.Unauthenticated
	}
}

// outward returns the words for the caller. A node agent learns whether it
// asked for something that is not on its node, because its log is where its
// operator looks first; nobody else learns anything about the cluster.
func (s *Server) outward(out outcome, caller authz.Caller) string {
	switch out.code {
	case codes.PermissionDenied:
		r := authz.Reason(out.reason)
		if (r == authz.NotOnNode || r == authz.NodeMismatch) && s.cfg.NodeAgent(caller.ServiceAccount) {
			return out.reason
		}
		return "denied"
	case codes.InvalidArgument:
		return out.reason // about what the caller sent, and so no news to it
	case codes.Unauthenticated:
		return "unauthenticated"
	case codes.ResourceExhausted:
		return "overloaded, try again"
	case codes.Unavailable, codes.Canceled:
		return "cannot tell now, try again"
	default:
		return "internal error"
	}
}

// stale reports whether the request might fare better with another replica.
func (o outcome) stale() bool {
	return o.reason == string(authz.Stale) || o.reason == string(authz.KeysTooOld)
}

// status returns what goes to the client. Node proxies log code and message
// only, so the message has the request ID.
func (o outcome) status(requestID string) *status.Status {
	st := status.New(o.code, fmt.Sprintf("%s (request %s)", o.outward, requestID))
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{
		Reason: o.outward, Domain: errorDomain, Metadata: map[string]string{"requestId": requestID},
	}}
	if o.after > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(o.after)})
	}
	if detailed, err := st.WithDetails(details...); err == nil {
		return detailed
	}
	return st
}
