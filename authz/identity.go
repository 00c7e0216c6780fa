package authz

import (
	"fmt"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// maxIdentity is the longest SPIFFE ID that implementations must support
// (SPIFFE-ID, Section 2.3). A longer one is refused before it is parsed.
const maxIdentity = 2048

// identity returns the SPIFFE ID of a service account.
func identity(td spiffeid.TrustDomain, sa ServiceAccount) (spiffeid.ID, error) {
	if !isLabel(sa.Namespace) || !isSubdomain(sa.Name) {
		return spiffeid.ID{}, fmt.Errorf("%q is not the name of a service account", sa)
	}
	return spiffeid.FromSegments(td, "ns", sa.Namespace, "sa", sa.Name)
}

// parseIdentity parses a SPIFFE ID that names a service account in td. There is
// one spelling for each identity: nothing is normalised, and so nothing can
// mean one thing here and another to whoever reads the certificate.
func parseIdentity(td spiffeid.TrustDomain, s string) (spiffeid.ID, ServiceAccount, error) {
	if len(s) > maxIdentity {
		return spiffeid.ID{}, ServiceAccount{}, fmt.Errorf("it is %d bytes long, more than %d", len(s), maxIdentity)
	}
	id, err := spiffeid.FromString(s)
	if err != nil {
		return spiffeid.ID{}, ServiceAccount{}, fmt.Errorf("parsing %q: %w", s, err)
	}
	if !id.MemberOf(td) {
		return spiffeid.ID{}, ServiceAccount{}, fmt.Errorf("%q is not in trust domain %q", s, td.Name())
	}
	// A path begins with a slash, and a name has none: what is missing from the
	// form makes a name that is none.
	namespace, name, _ := strings.Cut(strings.TrimPrefix(id.Path(), "/ns/"), "/sa/")
	if !isLabel(namespace) || !isSubdomain(name) {
		return spiffeid.ID{}, ServiceAccount{}, fmt.Errorf("%q is not of the form spiffe://%s/ns/<namespace>/sa/<service account>", s, td.Name())
	}
	return id, ServiceAccount{Namespace: namespace, Name: name}, nil
}

// isLabel reports whether s is a label as in RFC 1123, Section 2.1, in lower
// case, as Kubernetes requires of namespaces.
func isLabel(s string) bool { return len(s) <= 63 && isAlnumDashed(s) }

// isSubdomain reports whether s is a DNS subdomain as Kubernetes requires of
// service account names: labels joined by dots, at most 253 bytes in all. A
// label of it has no bound of its own there.
func isSubdomain(s string) bool {
	if len(s) > 253 {
		return false
	}
	for more := true; more; {
		var label string
		label, s, more = strings.Cut(s, ".")
		if !isAlnumDashed(label) {
			return false
		}
	}
	return true
}

// isAlnumDashed reports whether s is made of lower case letters, digits and
// dashes, with no dash at either end, and is not empty.
func isAlnumDashed(s string) bool {
	if s == "" || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
