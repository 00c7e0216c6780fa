package server

import (
	"testing"
	"time"

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
