package server_test

import (
	"log/slog"
	"testing"

	"github.com/bailiwick-ca/bailiwick/ca/server"
	authpb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// FuzzRequest sends whole messages, as they come from the wire, on behalf of a
// node agent on whose node everything runs. The metadata is in them, in every
// shape that it can have.
func FuzzRequest(f *testing.F) {
	good := forCart(f, cartID)
	for _, change := range []func(*authpb.IstioCertificateRequest){
		func(*authpb.IstioCertificateRequest) {},
		func(r *authpb.IstioCertificateRequest) { r.Metadata = nil },
		func(r *authpb.IstioCertificateRequest) { r.Metadata = impersonate(structpb.NewBoolValue(true)) },
		func(r *authpb.IstioCertificateRequest) {
			r.Metadata = impersonate(structpb.NewStructValue(&structpb.Struct{}))
		},
		func(r *authpb.IstioCertificateRequest) { r.ValidityDuration = 1 << 62 },
		func(r *authpb.IstioCertificateRequest) { r.Csr = r.Csr[:len(r.Csr)/2] },
	} {
		r, _ := proto.Clone(good).(*authpb.IstioCertificateRequest)
		change(r)
		data, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	rig := newRig(f)
	rig.cfg.Audit = slog.DiscardHandler
	s, err := server.New(rig.cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var req authpb.IstioCertificateRequest
		if proto.Unmarshal(data, &req) != nil {
			return // gRPC does not hand it over
		}
		resp, err := s.CreateCertificate(t.Context(), &req)
		if err != nil {
			if c := status.Code(err); resp != nil || (c != codes.InvalidArgument && c != codes.PermissionDenied) {
				t.Errorf("answered %v along with a reply: %v", err, resp != nil)
			}
			return
		}
		want := "spiffe://cluster.local/ns/istio-system/sa/ztunnel"
		if v, ok := req.GetMetadata().GetFields()["ImpersonatedIdentity"]; ok {
			want = v.GetStringValue()
		}
		if got := parse(t, resp.GetCertChain()[0]).URIs[0].String(); got != want {
			t.Errorf("a certificate for %q, when %q was asked for", got, want)
		}
	})
}
