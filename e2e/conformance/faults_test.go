package conformance

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
)

// The faults, by what is broken.

func brokenReplies() []broken {
	// e is: leaf, lower, upper, two roots.
	change := func(f func(e []string) []string) fault { return func(a *fake) { a.reply = f } }
	split := func(bundle string) (first, second string) {
		i := strings.LastIndex(bundle, "-----BEGIN")
		return bundle[:i], bundle[i:]
	}
	return []broken{
		{"one element", elements, "wire-01 wire-02 wire-03 wire-04 wire-05 wire-06 wire-11 wire-12",
			change(func(e []string) []string { return e[:1] })},
		{"issuers in one element", elements, "wire-02 wire-11",
			change(func(e []string) []string { return []string{e[0], e[1] + e[2], e[3]} })},
		{"leaf and issuers in one element", elements, "wire-02 wire-11",
			change(func(e []string) []string { return []string{e[0] + e[1] + e[2], e[3]} })},
		{"an element without a certificate", elements, "wire-02 wire-08",
			change(func(e []string) []string { return []string{e[0], e[1], e[2], "\n", e[3]} })},
		{"no root", elements, "wire-03 wire-04 wire-08",
			change(func(e []string) []string { return []string{e[0], e[1], e[2], "\n"} })},
		{"a leaf among the roots", whole, "wire-03 wire-04 wire-06",
			change(func(e []string) []string { return []string{e[0], e[1], e[2], e[3] + e[0]} })},
		{"an issuer for a root", whole, "wire-04",
			change(func(e []string) []string { return e[:3] })},
		{"the root among the issuers", whole, "wire-05 wire-06",
			change(func(e []string) []string {
				first, _ := split(e[3])
				return []string{e[0], e[1], e[2], first, e[3]}
			})},
		{"the second root among the issuers", elements, "wire-05 wire-12",
			change(func(e []string) []string {
				first, second := split(e[3])
				return []string{e[0], e[1], e[2], second, first}
			})},
		{"a root twice", whole, "wire-06",
			change(func(e []string) []string {
				_, second := split(e[3])
				return []string{e[0], e[1], e[2], e[3] + second}
			})},
		{"no newline", whole, "wire-07 wire-08",
			change(func(e []string) []string {
				return []string{e[0], e[1], e[2], strings.TrimSuffix(e[3], "\n")}
			})},
		{"two newlines", whole, "wire-08",
			change(func(e []string) []string { return []string{e[0], e[1] + "\n", e[2], e[3]} })},
		{"text before a certificate", whole, "wire-08",
			change(func(e []string) []string { return []string{e[0], "# lower\n" + e[1], e[2], e[3]} })},
		{"issuers in the wrong order", whole, onPath + " lifetime-03",
			change(func(e []string) []string { return []string{e[0], e[2], e[1], e[3]} })},
		{"an issuer missing", unjudged, onPath + "",
			change(func(e []string) []string { return []string{e[0], e[2], e[3]} })},
		{"another root", unjudged, onPath + "",
			change(func(e []string) []string {
				_, second := split(e[3])
				return []string{e[0], e[1], e[2], second}
			})},
		{"the same certificate for the same key", whole, "wire-16", func(f *fake) {
			given := map[string][]string{}
			f.reply = func(e []string) []string {
				block, _ := pem.Decode([]byte(e[0]))
				key := string(must(read(block.Bytes)).TBS.PublicKey.FullBytes)
				if given[key] == nil {
					given[key] = e
				}
				return given[key]
			}
		}},
	}
}

func brokenRequests() []broken {
	refuse := func(when func(*pb.IstioCertificateRequest) bool) fault {
		return func(f *fake) {
			f.request = func(in *pb.IstioCertificateRequest) error {
				if when(in) {
					return status.Error(codes.InvalidArgument, "unknown")
				}
				return nil
			}
		}
	}
	return []broken{
		{"CertSigner refused", whole, "wire-13", refuse(func(in *pb.IstioCertificateRequest) bool { return in.GetMetadata().GetFields()["CertSigner"] != nil })},
		{"unknown metadata refused", whole, "wire-14", refuse(func(in *pb.IstioCertificateRequest) bool { return len(in.GetMetadata().GetFields()) > 2 })},
		{"unknown fields refused", whole, "wire-15", refuse(func(in *pb.IstioCertificateRequest) bool { return len(in.ProtoReflect().GetUnknown()) > 0 })},
	}
}

// leaf is for a fault in the template.
func leaf(f func(*x509.Certificate)) fault {
	return func(a *fake) { a.leaf = func(c *x509.Certificate, _ *x509.CertificateRequest) { f(c) } }
}

func names(critical bool, all ...generalName) pkix.Extension {
	var raw []asn1.RawValue
	for _, n := range all {
		raw = append(raw, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: n.tag, Bytes: []byte(n.value)})
	}
	return pkix.Extension{Id: ce(subjectAltName), Critical: critical, Value: must(asn1.Marshal(raw))}
}

// named is for a fault in the names, of which the first is the right one.
func named(critical bool, f func(right generalName) []generalName) fault {
	return leaf(func(c *x509.Certificate) {
		var raw []asn1.RawValue
		must(asn1.Unmarshal(c.ExtraExtensions[0].Value, &raw))
		c.ExtraExtensions[0] = names(critical, f(generalName{tagURI, string(raw[0].Bytes)})...)
	})
}

func also(n generalName) func(generalName) []generalName {
	return func(right generalName) []generalName { return []generalName{right, n} }
}

func brokenLeaves() []broken {
	n := int64(0)
	return []broken{
		{"serial numbers in sequence", whole, "certificate-03", leaf(func(c *x509.Certificate) {
			n++
			c.SerialNumber = new(big.Int).SetBit(big.NewInt(n), 100, 1)
		})},
		{"serial numbers by the clock", whole, "certificate-03", leaf(func(c *x509.Certificate) { c.SerialNumber = big.NewInt(time.Now().UnixNano()) })},
		{"another spelling", unjudged, "certificate-05", named(true, func(right generalName) []generalName {
			return []generalName{{tagURI, strings.ToUpper(right.value[:6]) + right.value[6:]}}
		})},
		{"two URIs", unjudged, "certificate-05", named(true, also(generalName{tagURI, "spiffe://cluster.local/ns/a/sa/b"}))},
		{"a DNS name", unjudged, "certificate-06", named(true, also(generalName{2, "cart.shop"}))},
		{"an address", unjudged, "certificate-06", named(true, also(generalName{7, "\x0a\x00\x00\x01"}))},
		{"a subject", whole, "certificate-07", leaf(func(c *x509.Certificate) { c.Subject.CommonName = "cart" })},
		{"names not critical", whole, "certificate-08", named(false, func(right generalName) []generalName { return []generalName{right} })},
		{"names not critical, and a subject", whole, "certificate-07", func(f *fake) {
			f.leaf = func(c *x509.Certificate, _ *x509.CertificateRequest) {
				c.Subject.CommonName, c.ExtraExtensions[0].Critical = "cart", false
			}
		}},
		{"no keyUsage", unjudged, "certificate-09 certificate-10 certificate-11", leaf(func(c *x509.Certificate) { c.KeyUsage = 0 })},
		{"no digitalSignature", unjudged, "certificate-09 certificate-11", leaf(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyAgreement })},
		{"keyCertSign", unjudged, "certificate-09 certificate-11", leaf(func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign })},
		{"cRLSign", unjudged, "certificate-09 certificate-11", leaf(func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign })},
		{"keyEncipherment with EC keys", whole, "certificate-11", leaf(func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageKeyEncipherment })},
		{"not for clients", unjudged, "certificate-12", leaf(func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] })},
		{"not for servers", unjudged, "certificate-12", leaf(func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] })},
		{"for code, too", whole, "certificate-13 csr-04", leaf(func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageCodeSigning) })},
		{"an authority", unjudged, "certificate-14", leaf(func(c *x509.Certificate) { c.IsCA = true })},
		{"no basicConstraints", whole, "certificate-15", leaf(func(c *x509.Certificate) { c.BasicConstraintsValid = false })},
		{"an unknown critical extension", unjudged, "certificate-17", leaf(func(c *x509.Certificate) {
			c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: oidUnknown(), Critical: true, Value: []byte{5, 0}})
		})},
		{"an extension that is not critical", whole, "", leaf(func(c *x509.Certificate) {
			c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{1, 2, 3, 5}, Value: []byte{5, 0}})
		})},
	}
}

func brokenIssuers() []broken {
	issuer := func(f func(*x509.Certificate)) fault { return func(a *fake) { a.issuer = f } }
	bare := func(id asn1.ObjectIdentifier, v any) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: id, Value: must(asn1.Marshal(v))})
		}
	}
	return []broken{
		{"issuers that are no authorities", unjudged, "wire-10 certificate-16 certificate-23", issuer(func(c *x509.Certificate) { c.IsCA = false })},
		{"issuers that may not sign certificates", unjudged, "certificate-23", issuer(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign })},
		{"issuers that allow no issuer below them", unjudged, "certificate-23", issuer(func(c *x509.Certificate) { c.MaxPathLenZero = true })},
		{"basicConstraints of issuers not critical", whole, "certificate-24", issuer(bare(ce(basicConstraints), struct{ CA bool }{true}))},
		{"keyUsage of issuers not critical", whole, "certificate-24", issuer(bare(ce(keyUsage), asn1.BitString{Bytes: []byte{6}, BitLength: 7}))},
		{"issuers that may not sign revocation lists", whole, "certificate-25", issuer(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCertSign })},
		{"a root without keyUsage", whole, "certificate-24 certificate-25", func(f *fake) { f.root = func(c *x509.Certificate) { c.KeyUsage = 0 } }},
		{"a root that is no authority", unjudged, "wire-03 wire-10 certificate-23", func(f *fake) { f.root = func(c *x509.Certificate) { c.IsCA = false } }},
	}
}

// A tbs is a certificate to be edited.
type tbs struct {
	Version           int `asn1:"optional,explicit,default:0,tag:0"`
	Serial            *big.Int
	Algorithm         pkix.AlgorithmIdentifier
	Issuer            asn1.RawValue
	Validity          struct{ NotBefore, NotAfter asn1.RawValue }
	Subject           asn1.RawValue
	PublicKey         asn1.RawValue
	IssuerUID, SubUID asn1.BitString   `asn1:"optional,tag:1"`
	Extensions        []pkix.Extension `asn1:"omitempty,optional,explicit,tag:3"`
}

// edit is for a fault that crypto/x509 does not make. The certificate is signed
// again.
func edit(change func(c *tbs, outer *pkix.AlgorithmIdentifier)) fault {
	return func(f *fake) {
		f.der = func(der []byte) []byte {
			var whole struct {
				TBS       tbs
				Algorithm pkix.AlgorithmIdentifier
				Signature asn1.BitString
			}
			must(asn1.Unmarshal(der, &whole))
			change(&whole.TBS, &whole.Algorithm)
			inner := must(asn1.Marshal(whole.TBS))
			hash := crypto.SHA256
			sum := sha256.Sum256(inner)
			digest := sum[:]
			if whole.Algorithm.Algorithm.Equal(ecdsaSHA1()) {
				old := sha1.Sum(inner)
				hash, digest = crypto.SHA1, old[:]
			}
			signature := must(f.path[0].key.Sign(rand.Reader, digest, hash))
			return must(asn1.Marshal(struct {
				TBS       asn1.RawValue
				Algorithm pkix.AlgorithmIdentifier
				Signature asn1.BitString
			}{asn1.RawValue{FullBytes: inner}, whole.Algorithm, asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}}))
		}
	}
}

func ecdsaSHA1() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 1} }

// extensionEdited is for a fault in one extension.
func extensionEdited(id asn1.ObjectIdentifier, change func(*pkix.Extension)) fault {
	return edit(func(c *tbs, _ *pkix.AlgorithmIdentifier) {
		for i := range c.Extensions {
			if c.Extensions[i].Id.Equal(id) {
				change(&c.Extensions[i])
			}
		}
	})
}

func brokenEncodings() []broken {
	field := func(f func(*tbs)) fault { return edit(func(c *tbs, _ *pkix.AlgorithmIdentifier) { f(c) }) }
	algorithm := func(id asn1.ObjectIdentifier) fault {
		return edit(func(c *tbs, outer *pkix.AlgorithmIdentifier) { c.Algorithm.Algorithm, outer.Algorithm = id, id })
	}
	// notAfter has the time written in another way than YYMMDDHHMMSSZ.
	notAfter := func(tag int, write func(utc string) string) fault {
		return field(func(c *tbs) {
			c.Validity.NotAfter = asn1.RawValue{Tag: tag, Bytes: []byte(write(string(c.Validity.NotAfter.Bytes)))}
		})
	}
	return []broken{
		{"version 1", unjudged, "certificate-01", field(func(c *tbs) { c.Version = 0 })},
		{"a serial number below 0", unjudged, "certificate-02", field(func(c *tbs) { c.Serial.Neg(c.Serial) })},
		{"serial number 0", unjudged, "certificate-02 certificate-03", field(func(c *tbs) { c.Serial = new(big.Int) })},
		{"a serial number of 21 octets", unjudged, "certificate-02", field(func(c *tbs) { c.Serial.SetBit(c.Serial, 159, 1) })},
		{"another key", unjudged, "certificate-04", field(func(c *tbs) {
			c.PublicKey = asn1.RawValue{FullBytes: must(x509.MarshalPKIXPublicKey(must(newKey()).Public()))}
		})},
		{"keyUsage not critical", whole, "certificate-10", extensionEdited(ce(keyUsage), func(e *pkix.Extension) { e.Critical = false })},
		{"basicConstraints not critical", whole, "certificate-15", extensionEdited(ce(basicConstraints), func(e *pkix.Extension) { e.Critical = false })},
		{"the key of another issuer", whole, "certificate-16 wire-10", extensionEdited(ce(authorityKeyIdentifier), func(e *pkix.Extension) {
			e.Value = bytes.Clone(e.Value)
			e.Value[len(e.Value)-1] ^= 1
		})},
		{"no key of the issuer", whole, "certificate-16 wire-10", field(func(c *tbs) {
			c.Extensions = slices.DeleteFunc(c.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(ce(authorityKeyIdentifier)) })
		})},
		{"the name of another issuer", unjudged, onPath, field(func(c *tbs) {
			c.Issuer = asn1.RawValue{FullBytes: must(asn1.Marshal(pkix.Name{CommonName: "other"}.ToRDNSequence()))}
		})},
		{"an extension twice", unjudged, "certificate-17", field(func(c *tbs) {
			e := pkix.Extension{Id: oidUnknown(), Value: []byte{5, 0}}
			c.Extensions = append(c.Extensions, e, e)
		})},
		{"signed with SHA-1", unjudged, "certificate-18 " + onPath, algorithm(ecdsaSHA1())},
		{"the algorithm of another key", unjudged, "certificate-18 " + onPath, algorithm(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11})},
		{"another algorithm inside", unjudged, "certificate-19", field(func(c *tbs) { c.Algorithm.Algorithm = asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 3} })},
		{"times without seconds", unjudged, "certificate-20", notAfter(asn1.TagUTCTime, func(utc string) string { return utc[:10] + "Z" })},
		{"times in another zone", unjudged, "certificate-20", notAfter(asn1.TagUTCTime, func(utc string) string { return utc[:12] + "+0100" })},
		{"GeneralizedTime too early", whole, "certificate-21", notAfter(asn1.TagGeneralizedTime, func(utc string) string { return "20" + utc })},
		{"a unique identifier", whole, "certificate-22", field(func(c *tbs) { c.IssuerUID = asn1.BitString{Bytes: []byte{1}, BitLength: 8} })},
	}
}

// rule is for a fault in what is wanted of a CSR.
func rule(f func(*csrRule)) fault {
	return func(a *fake) {
		r := goodRule()
		f(&r)
		a.csr = r.read
	}
}

func brokenCSRs() []broken {
	copies := func(ids ...asn1.ObjectIdentifier) fault {
		return func(f *fake) {
			f.leaf = func(c *x509.Certificate, csr *x509.CertificateRequest) {
				for _, e := range csr.Extensions {
					if slices.ContainsFunc(ids, e.Id.Equal) {
						c.ExtraExtensions = slices.DeleteFunc(c.ExtraExtensions, func(x pkix.Extension) bool { return x.Id.Equal(e.Id) })
						c.ExtraExtensions = append(c.ExtraExtensions, e)
					}
				}
			}
		}
	}
	key := func(also func(crypto.PublicKey) bool) fault {
		return rule(func(r *csrRule) { r.key = func(k crypto.PublicKey) bool { return goodKey(k) || also(k) } })
	}
	notKey := func(but func(crypto.PublicKey) bool) fault {
		return rule(func(r *csrRule) { r.key = func(k crypto.PublicKey) bool { return goodKey(k) && !but(k) } })
	}
	isRSA := func(is func(*rsa.PublicKey) bool) func(crypto.PublicKey) bool {
		return func(k crypto.PublicKey) bool {
			r, ok := k.(*rsa.PublicKey)
			return ok && is(r)
		}
	}
	isCurve := func(c elliptic.Curve) func(crypto.PublicKey) bool {
		return func(k crypto.PublicKey) bool {
			e, ok := k.(*ecdsa.PublicKey)
			return ok && e.Curve == c
		}
	}
	password := func(csr *x509.CertificateRequest) bool { return bytes.Contains(csr.Raw, []byte("password."+marker)) }
	refuse := func(when func(*x509.CertificateRequest) bool) fault {
		return rule(func(r *csrRule) {
			r.names = func(csr *x509.CertificateRequest, id string) bool { return namesNone(csr, id) && !when(csr) }
		})
	}
	size := func(message, csr int) fault {
		return func(f *fake) {
			rule(func(r *csrRule) {
				r.plain = func(text string, block *pem.Block) bool {
					return len(text) < csr && armoured("CERTIFICATE REQUEST", block.Bytes) == text
				}
			})(f)
			f.most = message
		}
	}
	san := func(csr *x509.CertificateRequest) (e pkix.Extension) {
		for _, e = range csr.Extensions {
			if e.Id.Equal(ce(subjectAltName)) {
				return e
			}
		}
		return pkix.Extension{}
	}
	return []broken{
		{"subjects are copied", whole, "csr-01", func(f *fake) {
			f.leaf = func(c *x509.Certificate, csr *x509.CertificateRequest) { c.Subject = csr.Subject }
		}},
		{"names are copied", whole, "csr-02", copies(ce(subjectAltName))},
		{"the right to sign is copied", whole, "csr-03", copies(ce(basicConstraints), ce(keyUsage))},
		{"purposes are copied", whole, "csr-04", copies(ce(extKeyUsage))},
		{"name constraints are copied", whole, "csr-04", copies(oidNameConstraints())},
		{"unknown extensions are copied", whole, "csr-04", copies(oidUnknown())},
		{"passwords are refused", whole, "csr-05", refuse(password)},
		{"passwords are copied", whole, "csr-05", func(f *fake) {
			f.leaf = func(c *x509.Certificate, csr *x509.CertificateRequest) {
				if password(csr) {
					c.Subject.CommonName = marker
				}
			}
		}},
		{"names must be critical", whole, "csr-06", refuse(func(csr *x509.CertificateRequest) bool { return san(csr).Value != nil && !san(csr).Critical })},
		{"there must be names", whole, "csr-07", refuse(func(csr *x509.CertificateRequest) bool { return san(csr).Value == nil })},
		{"the CSR decides", whole, "csr-02 csr-08 csr-09", func(f *fake) {
			copies(ce(subjectAltName))(f)
			rule(func(r *csrRule) { r.names = func(*x509.CertificateRequest, string) bool { return true } })(f)
		}},
		{"names are not looked at", whole, "csr-09", rule(func(r *csrRule) { r.names = func(*x509.CertificateRequest, string) bool { return true } })},
		{"no RSA", whole, "csr-10 csr-11 wire-13 certificate-11", notKey(isRSA(func(*rsa.PublicKey) bool { return true }))},
		{"no P-384", whole, "csr-11", notKey(isCurve(elliptic.P384()))},
		{"RSA of 2048 bits only", whole, "csr-11", notKey(isRSA(func(k *rsa.PublicKey) bool { return k.N.BitLen() != 2048 }))},
		{"short RSA", whole, "csr-12", key(isRSA(func(k *rsa.PublicKey) bool { return k.N.BitLen() < 2048 }))},
		{"P-224", whole, "csr-13", key(isCurve(elliptic.P224()))},
		{"long RSA", whole, "csr-14", key(isRSA(func(k *rsa.PublicKey) bool { return k.N.BitLen() > 4096 }))},
		{"Ed25519", whole, "csr-15", key(func(k crypto.PublicKey) bool { _, ok := k.(ed25519.PublicKey); return ok })},
		{"no proof", whole, "csr-16", rule(func(r *csrRule) { r.proof = func(*x509.CertificateRequest) error { return nil } })},
		{"exponent 1", whole, "csr-17", rule(func(r *csrRule) {
			one := isRSA(func(k *rsa.PublicKey) bool { return k.E == 1 })
			r.key = func(k crypto.PublicKey) bool { return goodKey(k) || one(k) }
			r.proof = func(csr *x509.CertificateRequest) error {
				if one(csr.PublicKey) {
					return nil
				}
				return csr.CheckSignature()
			}
		})},
		{"something for nothing", whole, "csr-18 csr-19", func(f *fake) {
			other := must(goodCSR(must(newCSR(must(newKey()), csrSpec{})), ""))
			f.csr = func(text, id string) (*x509.CertificateRequest, error) {
				if block, _ := pem.Decode([]byte(text)); block == nil {
					return other, nil
				}
				return goodCSR(text, id)
			}
		}},
		{"no answer for nothing", these, "csr-18 csr-19", func(f *fake) {
			f.patience = time.Second
			f.csr = func(text, id string) (*x509.CertificateRequest, error) {
				if block, _ := pem.Decode([]byte(text)); block == nil {
					<-f.stopped
				}
				return goodCSR(text, id)
			}
		}},
		{"the first block of any kind", whole, "csr-19", rule(func(r *csrRule) {
			r.plain = func(text string, _ *pem.Block) bool { return len(text) <= 16<<10 }
		})},
		{"1 MiB", whole, "csr-20 csr-21", size(4<<20, 4<<20)},
		{"64 KiB", whole, "csr-21", size(1<<17, 1<<17)},
	}
}

func brokenLifetimes() []broken {
	life := func(f func(seconds int64) (time.Duration, error)) fault { return func(a *fake) { a.life = f } }
	const oneDay = 24 * time.Hour
	// within has an authority cap, and take nothing that is odd.
	within := func(most time.Duration) func(int64) (time.Duration, error) {
		return func(seconds int64) (time.Duration, error) {
			d, err := goodLife(seconds)
			if asked := time.Duration(seconds) * time.Second; err == nil && asked > oneDay {
				d = min(asked, most)
			}
			return d, err
		}
	}
	aged := func(f *fake) {
		f.issuer = func(c *x509.Certificate) { c.NotAfter = c.NotAfter.AddDate(200, 0, 0) }
		f.root = f.issuer
	}
	return []broken{
		{"no default", whole, "lifetime-01", life(func(n int64) (time.Duration, error) {
			if n == 0 {
				return 0, fmt.Errorf("no lifetime")
			}
			return goodLife(n)
		})},
		{"always a day", whole, "lifetime-02", life(func(n int64) (time.Duration, error) {
			if n == 3600 {
				n = day
			}
			return goodLife(n)
		})},
		{"always a quarter of an hour", whole, "lifetime-02", life(func(n int64) (time.Duration, error) {
			if n == 3600 {
				n = 900
			}
			return goodLife(n)
		})},
		{"as long as is asked", whole, "lifetime-03 lifetime-04 lifetime-05", life(within(200 * 366 * oneDay))},
		{"longer than the root", whole, "lifetime-03", func(f *fake) {
			f.root = func(c *x509.Certificate) { c.NotAfter = time.Now().Add(2 * time.Hour) }
		}},
		{"for five years", whole, "lifetime-04 lifetime-05", func(f *fake) { aged(f); life(within(5 * 365 * oneDay))(f) }},
		{"no more than a day", whole, "lifetime-05", life(func(n int64) (time.Duration, error) {
			if n > day {
				return 0, fmt.Errorf("too long")
			}
			return goodLife(n)
		})},
		{"negative is expired", whole, "lifetime-06 lifetime-07 lifetime-08", life(func(n int64) (time.Duration, error) {
			if n < 0 {
				return -time.Hour, nil
			}
			return goodLife(n)
		})},
		{"overflow is for ever", whole, "lifetime-06 lifetime-07", life(func(n int64) (time.Duration, error) {
			if n >= 1<<32 {
				return 250 * 365 * oneDay, nil
			}
			return goodLife(n)
		})},
		{"negative is a day", whole, "lifetime-07", life(func(n int64) (time.Duration, error) {
			if n < 0 {
				n = 0
			}
			return goodLife(n)
		})},
		{"a second, from two minutes ago", whole, "lifetime-08", func(f *fake) {
			life(func(n int64) (time.Duration, error) {
				if n > 0 && n < 600 {
					return time.Duration(n) * time.Second, nil
				}
				return goodLife(n)
			})(f)
			leaf(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(-2 * time.Minute) })(f)
		}},
		{"from now on", whole, "lifetime-09", leaf(func(c *x509.Certificate) { c.NotBefore = time.Now() })},
		{"from long ago", whole, "lifetime-08 lifetime-09", leaf(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(-2 * oneDay) })},
		{"all alike", whole, "lifetime-10", life(func(n int64) (time.Duration, error) {
			if n == day {
				return oneDay, nil
			}
			return goodLife(n)
		})},
	}
}
