package server

import (
	"fmt"

	authpb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
	"google.golang.org/protobuf/types/known/structpb"
)

// impersonatedIdentity is the metadata key of the identity that is asked for.
const impersonatedIdentity = "ImpersonatedIdentity"

// A metadataError reports request metadata that says nothing we can act on. It
// must not be taken for an absent identity: that would hand the caller another
// certificate than it asked for.
type metadataError struct{ err error }

func (e *metadataError) Error() string { return "invalid metadata: " + e.err.Error() }

// wantedIdentity returns the identity that req asks for, or "" if it asks for
// the caller's own by naming none. All other metadata is ignored.
func wantedIdentity(req *authpb.IstioCertificateRequest) (string, error) {
	v, ok := req.GetMetadata().GetFields()[impersonatedIdentity]
	if !ok {
		return "", nil
	}
	s, ok := v.GetKind().(*structpb.Value_StringValue)
	if !ok {
		return "", &metadataError{fmt.Errorf("%s is not a string", impersonatedIdentity)}
	}
	if s.StringValue == "" {
		return "", &metadataError{fmt.Errorf("%s is empty", impersonatedIdentity)}
	}
	return s.StringValue, nil
}
