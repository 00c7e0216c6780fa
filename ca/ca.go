// Package ca says what a certificate is, and signs it.
//
// It is the last stage of a request: [ParseCSR] looks at the request for a
// certificate before the caller's right to it is judged, [CSR.Verify] after,
// and [Authority.Issue] signs for nothing but an [authz.Grant]. A CSR
// contributes its public key and the proof that its sender holds the private
// one; names and lifetimes are ours.
//
// Two doors sign, each with its own kind of input: Issue for workloads, and
// [Authority.IssueServing] for our own server. What leaves through them has
// been parsed again and judged by [Check] or [CheckServing], which are written
// from RFC 5280 and the X509-SVID standard and share nothing with the templates.
//
// The package knows nothing of tokens, Kubernetes, gRPC or files, and has no
// clock: the time is a parameter.
package ca
