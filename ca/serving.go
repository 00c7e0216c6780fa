package ca

import (
	"crypto"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// ServingNames are what clients call our server. They come from configuration,
// never from a request.
type ServingNames struct {
	DNS []string
	IPs []netip.Addr
}

// Validate reports the first name that cannot stand in a certificate.
func (n ServingNames) Validate() error {
	if len(n.DNS)+len(n.IPs) == 0 {
		return errors.New("a server needs a name")
	}
	for _, name := range n.DNS {
		if !isHostname(name) {
			return fmt.Errorf("%q is not a host name", name)
		}
	}
	for _, ip := range n.IPs {
		if !ip.IsValid() || ip.Zone() != "" || ip.Is4In6() {
			return fmt.Errorf("%q is not an IP address for a certificate", ip)
		}
	}
	return nil
}

// IssueServing signs a certificate for the TLS server that has these names and
// the key pub. It lives as long as the longest leaf.
func (a *Authority) IssueServing(now time.Time, pub crypto.PublicKey, names ServingNames) (*Issued, error) {
	if err := names.Validate(); err != nil {
		return nil, err
	}
	if err := checkLeafKey(pub, a.profile.AllowEd25519); err != nil {
		return nil, err
	}
	v, err := a.validity(now, a.profile.MaxLeafLife)
	if err != nil {
		return nil, err
	}
	template := newTemplate(v, pub)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = names.DNS
	for _, ip := range names.IPs {
		template.IPAddresses = append(template.IPAddresses, ip.AsSlice())
	}
	leaf, err := a.sign(template, pub)
	if err != nil {
		return nil, err
	}
	if err := CheckServing(leaf, a.issuer, names, a.want(now, pub)); err != nil {
		return nil, fmt.Errorf("a serving certificate was signed that must not be: %w", err)
	}
	// The names of a server are not those that the probe was issued for, so
	// name constraints on the path are met here for the first time.
	if err := a.verify(now, leaf, x509.ExtKeyUsageServerAuth); err != nil {
		return nil, fmt.Errorf("verifying the serving certificate as a client would: %w", err)
	}
	return a.issued(leaf, v), nil
}

// CheckServing reports the first way in which leaf departs from the certificate
// of a TLS server with exactly these names, issued under issuer. See [Check].
func CheckServing(leaf, issuer *x509.Certificate, names ServingNames, want Want) error {
	const dnsName, ipAddress = 2, 7 // RFC 5280, Section 4.2.1.6
	var all []asn1.RawValue
	for _, name := range names.DNS {
		all = append(all, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: dnsName, Bytes: []byte(name)})
	}
	for _, ip := range names.IPs {
		all = append(all, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: ipAddress, Bytes: ip.AsSlice()})
	}
	return checkLeaf(leaf, issuer, all, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, want)
}

// isHostname reports whether s is a name as in RFC 1123, Section 2.1. There are
// no wildcards: a server that signs has names of its own.
func isHostname(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		// Trim stops at the first other character from either side.
		if strings.Trim(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
			return false
		}
	}
	return true
}
