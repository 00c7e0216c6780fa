package conformance

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
)

// A request is what goes over the wire. Its zero value asks, with no token, for
// nothing.
type request struct {
	headers  metadata.MD
	csr      string
	seconds  int64
	metadata *structpb.Struct
	key      crypto.Signer // of the CSR, for judging the answer; nil if there is none
	unknown  []byte        // fields that are not in the proto file, encoded

	what string        // is special about it, for reports
	wait time.Duration // 20 s if 0
}

// An option changes a request.
type option func(*request)

func withSeconds(n int64) option { return func(r *request) { r.seconds = n } }
func withCSR(text string) option { return func(r *request) { r.csr, r.key = text, nil } }

// withHeader sets the values of a header; none of them removes it.
func withHeader(name string, values ...string) option {
	return func(r *request) {
		delete(r.headers, name)
		if len(values) > 0 {
			r.headers[name] = values
		}
	}
}

// withMetadata sets a field of the request's metadata; nil removes it.
func withMetadata(name string, v *structpb.Value) option {
	return func(r *request) {
		if r.metadata == nil {
			r.metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		}
		if r.metadata.Fields[name] = v; v == nil {
			delete(r.metadata.Fields, name)
		}
	}
}

// An answer is what came back.
type answer struct {
	code    codes.Code
	message string
	details []any
	chain   []string
	key     crypto.Signer // that the CSR was for
	took    time.Duration
}

// issued reports whether there is a certificate.
func (a *answer) issued() bool { return a.code == codes.OK }

// refused reports whether the answer is "no", rather than that it cannot be
// told now.
func (a *answer) refused() bool {
	return slices.Contains([]codes.Code{codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound, codes.OutOfRange, codes.Unimplemented}, a.code)
}

// send sends a request.
func (c *connection) send(ctx context.Context, r *request) *answer {
	wait := r.wait
	if wait == 0 {
		wait = 20 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	ctx = metadata.NewOutgoingContext(ctx, r.headers)
	began := time.Now() //nolint:forbidigo // how long an answer takes is part of it
	in := &pb.IstioCertificateRequest{Csr: r.csr, ValidityDuration: r.seconds, Metadata: r.metadata}
	in.ProtoReflect().SetUnknown(r.unknown)
	out, err := c.client.CreateCertificate(ctx, in)
	s := status.Convert(err)
	return &answer{code: s.Code(), message: s.Message(), details: s.Details(), chain: out.GetCertChain(), key: r.key, took: time.Since(began)}
}

// newKey makes a key as ztunnel does.
func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// A csrSpec is what a certification request is to be like.
type csrSpec struct {
	subject     pkix.Name
	uri         []string // of the SAN
	notCritical bool     // the SAN
	extensions  []pkix.Extension
}

// newCSR makes a certification request as ztunnel does: an empty subject, and
// one critical extension, a SAN with the URI, if there is one.
func newCSR(key crypto.Signer, spec csrSpec) (string, error) {
	t := &x509.CertificateRequest{Subject: spec.subject, ExtraExtensions: spec.extensions}
	if len(spec.uri) > 0 {
		san, err := uriSAN(!spec.notCritical, spec.uri...)
		if err != nil {
			return "", err
		}
		t.ExtraExtensions = append(t.ExtraExtensions, san)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, t, key)
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), nil
}

// uriSAN makes the extension of RFC 5280, Section 4.2.1.6, with URIs only.
func uriSAN(critical bool, uris ...string) (pkix.Extension, error) {
	var names []asn1.RawValue
	for _, u := range uris {
		names = append(names, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(u)})
	}
	der, err := asn1.Marshal(names)
	return pkix.Extension{Id: ce(subjectAltName), Critical: critical, Value: der}, err
}
