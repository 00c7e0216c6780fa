package token

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bailiwick-ca/bailiwick/authz"
)

// claims are the claims of a bound service account token (kubernetes,
// pkg/serviceaccount/claims.go). Names are well-formed, and sub agrees with
// them.
type claims struct {
	issuer, subject, id         string
	audience                    []string
	issuedAt, notBefore, expiry time.Time

	namespace string
	account   ref
	pod       ref      // zero if there is none
	node      ref      // zero if there is none; without a UID if the Node object was gone
	others    []string // members of kubernetes.io that are none of these: what else it is bound to
}

// A ref names an object of the API.
type ref struct{ name, uid string }

// caller is what the claims say, once they are proven.
func (c *claims) caller() authz.Caller {
	return authz.Caller{
		ServiceAccount:    authz.ServiceAccount{Namespace: c.namespace, Name: c.account.name},
		ServiceAccountUID: c.account.uid,
		Pod:               c.pod.name,
		PodUID:            c.pod.uid,
		Node:              c.node.name,
		NodeUID:           c.node.uid,
		TokenID:           c.id,
	}
}

// parseClaims reads the claims. The API server writes iat, nbf and exp into
// every bound token, and kubernetes.io too; without them it is something else.
func parseClaims(payload []byte) (claims, error) {
	o := parseObject(payload)
	c := claims{
		issuer:    o.text("iss"),
		subject:   o.text("sub"),
		id:        o.optionalText("jti"),
		audience:  o.texts("aud"),
		issuedAt:  o.time("iat"),
		notBefore: o.time("nbf"),
		expiry:    o.time("exp"),
	}
	if c.id != "" && !isOpaque(c.id) {
		o.fail("jti", "is not printable, or too long")
	}
	c.parseBinding(o.object("kubernetes.io"))
	if c.subject != "system:serviceaccount:"+c.namespace+":"+c.account.name {
		o.fail("sub", "does not name the service account of kubernetes.io")
	}
	return c, o.err()
}

// parseBinding reads what the API server itself says of the token's bearer.
func (c *claims) parseBinding(k object) {
	c.namespace = k.text("namespace")
	if len(validation.IsDNS1123Label(c.namespace)) > 0 {
		k.fail("namespace", "is not the name of a namespace")
	}
	c.account = parseRef(k, "serviceaccount")
	if c.account.uid == "" {
		k.fail("serviceaccount", "has no UID")
	}
	if k.has("pod") {
		c.pod = parseRef(k, "pod")
		if c.pod.uid == "" {
			k.fail("pod", "has no UID")
		}
	}
	if k.has("node") {
		c.node = parseRef(k, "node")
	}
	// warnafter only lets the API server count clients that use old tokens.
	c.others = k.others("namespace", "serviceaccount", "pod", "node", "warnafter")
}

func parseRef(k object, name string) ref {
	o := k.object(name)
	r := ref{o.text("name"), o.optionalText("uid")}
	if len(validation.IsDNS1123Subdomain(r.name)) > 0 {
		o.fail("name", "is not a name that Kubernetes allows")
	}
	if o.has("uid") && !isOpaque(r.uid) {
		o.fail("uid", "is empty, not printable, or too long")
	}
	for _, other := range o.others("name", "uid") {
		o.fail(other, "is not known here")
	}
	return r
}

// isOpaque reports whether s may be a UID or a token ID. Both are UUIDs today,
// and promised to be no more than opaque.
func isOpaque(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
