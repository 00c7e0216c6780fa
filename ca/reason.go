package ca

import "fmt"

// A Reason is one word for why no certificate was issued. The same word stands
// in the metric, the audit line and the documentation: words are added to the
// lists below, never changed.
type Reason string

// Reasons of a [RequestError].
const (
	BadCSR          Reason = "bad-csr"           // not exactly one well-formed PKCS #10 request of a sane size
	BadKey          Reason = "bad-key"           // a public key of a kind or size that is not certified
	NoPossession    Reason = "no-possession"     // its signature does not prove that the sender holds the key
	CSRNamesAnother Reason = "csr-names-another" // it names another SPIFFE ID than the one granted
	BadLifetime     Reason = "bad-lifetime"      // negative, too short, or too large for a number of seconds
)

// Reasons of an [IssuerError].
const (
	IssuerExpiring Reason = "issuer-expiring"      // less than the shortest leaf life is left on the signing path
	IssuerEarly    Reason = "issuer-not-yet-valid" // our clock is behind the start of a certificate on the signing path
)

// A RequestError says that the request is at fault: sent again, it fails again.
type RequestError struct {
	Reason Reason
	Err    error // for the operator; it never quotes more than a name from the CSR
}

func (e *RequestError) Error() string { return fmt.Sprintf("bad request (%s): %v", e.Reason, e.Err) }

// Unwrap returns the cause.
func (e *RequestError) Unwrap() error { return e.Err }

// An IssuerError says that the authority cannot sign now: the same request may
// succeed later, or elsewhere.
type IssuerError struct {
	Reason Reason
	Err    error
}

func (e *IssuerError) Error() string { return fmt.Sprintf("cannot sign (%s): %v", e.Reason, e.Err) }

// Unwrap returns the cause.
func (e *IssuerError) Unwrap() error { return e.Err }

func refuse(r Reason, format string, args ...any) error {
	return &RequestError{Reason: r, Err: fmt.Errorf(format, args...)}
}
