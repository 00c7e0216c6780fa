package conformance

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
)

// groups returns the cases of the groups that this file is about.
func groups() []Case {
	return slices.Concat(wireCases(), certificateCases(), csrCases(), lifetimeCases())
}

// A scope says which cases a fault is tried on: those of the groups in which one
// is to fail; of them, those that do not judge all of a certificate on the way,
// or that look at the elements of a reply only; or none but those that are to
// fail.
type scope int

const (
	whole scope = iota
	unjudged
	elements
	these
)

func (b broken) cases() []Case {
	return slices.DeleteFunc(groups(), func(c Case) bool {
		plain := c.Group() == "wire" && c.ID <= "wire-08" || c.ID == "wire-11" || c.ID == "wire-12"
		judges := c.Group() == "wire" && c.ID > "wire-12" || c.Group() == "csr" || c.Group() == "lifetime"
		return c.ID == openSSL || b.fails != "" && !strings.Contains(b.fails, c.Group()+"-") ||
			b.scope == elements && !plain || b.scope == unjudged && judges || b.scope == these && !strings.Contains(b.fails, c.ID)
	})
}

// openSSL is the case that has a test of its own: programs of that name differ.
const openSSL = "certificate-26"

// onPath are the cases that need a path from leaf to root.
const onPath = "wire-09 wire-10 certificate-16 certificate-23 certificate-24 certificate-25"

// A broken authority is one with a fault.
type broken struct {
	name  string
	scope scope
	fails string // the cases that fail; no others in the scope do
	fault fault
}

func faults() []broken {
	return slices.Concat(brokenReplies(), brokenRequests(), brokenLeaves(), brokenIssuers(), brokenEncodings(), brokenCSRs(), brokenLifetimes())
}

func TestCasesFailForTheirFault(t *testing.T) {
	for _, tt := range faults() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var failed []string
			var why []string
			for _, r := range play(t, tt.cases(), tt.fault) {
				if r.Outcome == Failed {
					failed = append(failed, r.ID)
					why = append(why, fmt.Sprintf("%s: %.300s", r.ID, r.Evidence[0]))
				}
			}
			want := append([]string(nil), strings.Fields(tt.fails)...)
			slices.Sort(want)
			slices.Sort(failed)
			if diff := cmp.Diff(want, failed); diff != "" {
				t.Errorf("failed cases, -want +got:\n%s\n%s", diff, strings.Join(why, "\n"))
			}
		})
	}
}

// No case of the four groups is without a fault that it fails for.
func TestEachCaseCanFail(t *testing.T) {
	fails := map[string]bool{}
	for _, b := range faults() {
		for id := range strings.FieldsSeq(b.fails) {
			fails[id] = true
		}
	}
	for _, c := range groups() {
		if !fails[c.ID] && c.ID != openSSL {
			t.Errorf("no fault is for %s: %s", c.ID, c.Says)
		}
	}
}

func TestGoodAuthoritiesPass(t *testing.T) {
	single := "wire-11 wire-12"
	for _, tt := range []struct {
		name   string
		notRun string
		layout fault
	}{
		{"two issuers and two roots", "", func(*fake) {}},
		{"one issuer and one root", single, func(f *fake) {
			f.layout = func(f *fake) {
				f.path, f.roots = []*signer{newSigner(t, "lower", f.roots[0], f.issuer)}, f.roots[:1]
			}
		}},
		{"a root that signs leaves", single, func(f *fake) {
			f.layout = func(f *fake) {
				f.path, f.roots = f.roots[:1], f.roots[:1]
			}
			f.reply = func(e []string) []string { return []string{e[0], e[2]} }
		}},
		{"RSA keys", single, func(f *fake) { f.layout = relay(t, must(rsa.GenerateKey(rand.Reader, 2048))) }},
		{"keys on P-384", single, func(f *fake) { f.layout = relay(t, must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for id, r := range play(t, groups(), tt.layout) {
				want := Passed
				if strings.Contains(tt.notRun, id) {
					want = NotRun
				}
				if r.Outcome != want {
					t.Errorf("%s %s: %s: %q", id, r.Outcome, r.Says, r.Evidence)
				}
			}
		})
	}
}

// relay has leaves signed by an issuer with a key, below a root with the same.
func relay(t *testing.T, key crypto.Signer) func(*fake) {
	return func(f *fake) {
		root := newSignerOf(t, key, "root", nil, f.root)
		f.roots = []*signer{root}
		f.path = []*signer{newSignerOf(t, key, "lower", root, f.issuer)}
	}
}

func must[A any](a A, err error) A {
	if err != nil {
		panic(err)
	}
	return a
}

// An authority that refuses everything passes nothing.
func TestRefusingAuthorityPassesNothing(t *testing.T) {
	for id, r := range play(t, groups(), func(f *fake) {
		f.request = func(*pb.IstioCertificateRequest) error { return status.Error(codes.PermissionDenied, "no") }
	}) {
		if r.Outcome == Passed {
			t.Errorf("%s passed: %s", id, r.Says)
		}
	}
}

// Each request of a case is told apart from a good one, and not by chance from
// another fault in it.
func TestRequestsFailForTheirFault(t *testing.T) {
	for _, tt := range []struct {
		fault, id string
		says      string
		n         int
	}{
		{"subjects are copied", "csr-01", "the subject", 3},
		{"names are copied", "csr-02", "the name", 5},
		{"the right to sign is copied", "csr-03", "of an authority", 2},
		{"the CSR decides", "csr-08", "a CSR for", 4},
		{"names are not looked at", "csr-09", "a certificate was issued", 4},
		{"no proof", "csr-16", "a certificate was issued", 3},
		{"something for nothing", "csr-18", "a certificate was issued", 3},
		{"the first block of any kind", "csr-19", "a certificate was issued", 4},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			i := slices.IndexFunc(faults(), func(b broken) bool { return b.name == tt.fault })
			cases := slices.DeleteFunc(csrCases(), func(c Case) bool { return c.ID != tt.id })
			n := 0
			evidence := play(t, cases, faults()[i].fault)[tt.id].Evidence
			for _, line := range evidence {
				if strings.Contains(line, tt.says) {
					n++
				}
			}
			if n != tt.n {
				t.Errorf("%d lines, want %d:\n%s", n, tt.n, strings.Join(evidence, "\n"))
			}
		})
	}
}

// An authority that issues what is wrong is judged by the cases, and not turned
// away before.
func TestRunJudgesWhatIsIssued(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault fault
		fails int // of the first two cases
		err   string
	}{
		{"a good one", func(*fake) {}, 0, ""},
		{"one element", func(f *fake) { f.reply = func(e []string) []string { return e[:1] } }, 2, ""},
		{"nothing", func(f *fake) {
			f.request = func(*pb.IstioCertificateRequest) error { return status.Error(codes.PermissionDenied, "no") }
		}, 0, "nothing to judge"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster()
			results, err := Run(t.Context(), Config{Target: newFake(t, c, tt.fault).target(t), World: c, Cases: wireCases()[:2]})
			if got := fmt.Sprint(err); (err == nil) != (tt.err == "") || !strings.Contains(got, tt.err) {
				t.Fatalf("error %q, want %q", got, tt.err)
			}
			n := 0
			for _, r := range results {
				if r.Outcome == Failed {
					n++
				}
			}
			if n != tt.fails {
				t.Errorf("%d cases fail, want %d: %+v", n, tt.fails, results)
			}
		})
	}
}

func TestOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip(err)
	}
	verify := func(breaks ...fault) Result {
		cases := slices.DeleteFunc(certificateCases(), func(c Case) bool { return c.ID != openSSL })
		return play(t, cases, breaks...)[openSSL]
	}
	if r := verify(); r.Outcome != Passed {
		t.Errorf("a good one %s: %q", r.Outcome, r.Evidence)
	}
	for _, b := range faults() {
		if b.name == "no key of the issuer" || b.name == "not for clients" || b.name == "not for servers" {
			if r := verify(b.fault); r.Outcome != Failed {
				t.Errorf("%s %s", b.name, r.Outcome)
			}
		}
	}
	t.Setenv("PATH", "")
	if r := verify(); r.Outcome != NotRun {
		t.Errorf("without openssl it %s: %q", r.Outcome, r.Evidence)
	}
}

func TestCasesAreNumbered(t *testing.T) {
	n := map[string]int{}
	says := map[string]string{}
	for _, c := range Cases() {
		n[c.Group()]++
		if want := fmt.Sprintf("%s-%02d", c.Group(), n[c.Group()]); c.ID != want {
			t.Errorf("%s stands where %s belongs", c.ID, want)
		}
		if other := says[c.Says]; other != "" {
			t.Errorf("%s says what %s says", c.ID, other)
		}
		says[c.Says] = c.ID
		if c.Says == "" || c.Source == "" || c.run == nil || !slices.Contains([]Level{Must, Should, Profile}, c.Level) {
			t.Errorf("%s lacks something: %+v", c.ID, c)
		}
	}
}
