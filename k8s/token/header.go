package token

import (
	"strings"
	"sync/atomic"

	"github.com/bailiwick-ca/bailiwick/authz"
)

// maxHeader is the longest authorization value that is looked at. A token of
// the kubelet's has about 1.2 KiB.
const maxHeader = 16 << 10

// bearer returns the token of a request: its one authorization value is the
// scheme in any case (RFC 9110, Section 11.1), one space, and the token.
// RFC 9110 allows more spaces; no client of ours sends them, and nothing is
// trimmed here. The length is looked at before anything else is (CVE-2025-30204).
func bearer(values []string) (string, error) {
	if len(values) != 1 {
		return "", authz.Deny(authz.NoToken, "%d authorization values instead of one", len(values))
	}
	if n := len(values[0]); n > maxHeader {
		return "", authz.Deny(authz.BadToken, "the authorization value is %d bytes long, more than %d", n, maxHeader)
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", authz.Deny(authz.NoToken, "the authorization value is not \"Bearer\", one space and a token")
	}
	return token, nil
}

// clusterCounts counts what requests say of their cluster. It lends no trust:
// whatever the value, the token must be one of our cluster's.
type clusterCounts struct {
	own string

	absent, known, other atomic.Uint64
}

// check counts a request's clusterid, and refuses it only if there is more than
// one: such a request has no one meaning.
func (c *clusterCounts) check(values []string) error {
	switch {
	case len(values) > 1:
		return authz.Deny(authz.UnknownCluster, "%d clusterid values instead of one at most", len(values))
	case len(values) == 0:
		c.absent.Add(1)
	case values[0] == c.own:
		c.known.Add(1)
	default:
		c.other.Add(1)
	}
	return nil
}
