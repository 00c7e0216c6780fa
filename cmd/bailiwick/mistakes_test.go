package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/k8s/token"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// TestTenMistakes makes the mistakes on the page about troubleshooting, and
// wants what is printed to be what the page shows.
func TestTenMistakes(t *testing.T) {
	_, page, _ := strings.Cut(readFile(t, "../../docs/troubleshooting.md"), "\n## Ten mistakes")
	page, _, _ = strings.Cut(page, "\n## ")
	mistakes := []struct {
		title string
		make  func(m *mistake)
	}{
		{"The wrong account in `nodeAgents`", wrongAccount},
		{"Another trust domain", wrongTrustDomain},
		{"A token for another audience", wrongAudience},
		{"A missing role", missingRole},
		{"A clock that is off by 10 minutes", wrongClock},
		{"CA files mixed up", mixedUpFiles},
		{"A key without its certificate", keyAlone},
		{"A port that is taken", portTaken},
		{"No permission to read the token keys", forbiddenKeys},
		{"The kubeconfig of another cluster", anotherCluster},
	}
	for _, tt := range mistakes {
		t.Run(tt.title, func(t *testing.T) {
			m := &mistake{T: t, dir: t.TempDir(), began: time.Now().UTC().Truncate(time.Second)}
			tt.make(m)
			_, section, _ := strings.Cut(page, "\n### "+tt.title+"\n")
			section, _, _ = strings.Cut(section, "\n### ")
			if diff := cmp.Diff(m.printed(), blocks(section)); diff != "" {
				t.Errorf("(-printed +page):\n%s", diff)
			}
		})
	}
	if n := strings.Count(page, "\n### "); n != len(mistakes) {
		t.Errorf("the page has %d mistakes, and %d are made", n, len(mistakes))
	}
}

// blocks returns the fenced blocks of a section.
func blocks(section string) []string {
	var all []string
	for _, part := range strings.Split(section, "\n```text\n")[1:] {
		text, _, _ := strings.Cut(part, "```")
		all = append(all, text)
	}
	return all
}

// A mistake is made, and what is printed then is written down.
type mistake struct {
	*testing.T

	dir   string
	began time.Time
	out   []string
	names []string // pairs: what is in the place of what, on the page
}

// printed returns what was printed, with the page's names, times and numbers.
func (m *mistake) printed() []string {
	names := strings.NewReplacer(append(m.names, m.dir+"/", "")...)
	stamp := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	keyID := regexp.MustCompile(`\b[0-9a-f]{40}\b`)
	requestID := regexp.MustCompile(`\b[0-9a-f]{16}\b`)
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	ids := make(map[string]string)
	var all []string
	for _, text := range m.out {
		text = stamp.ReplaceAllStringFunc(text, func(s string) string {
			at, err := time.Parse(time.RFC3339Nano, s)
			if err != nil {
				m.Error(err)
			}
			return noon.Add(at.Sub(m.began).Round(time.Minute)).Format(time.RFC3339)
		})
		text = keyID.ReplaceAllStringFunc(text, func(s string) string {
			if ids[s] == "" {
				ids[s] = fmt.Sprintf("%x", sha256.Sum256([]byte{byte(len(ids))}))[:40]
			}
			return ids[s]
		})
		all = append(all, names.Replace(requestID.ReplaceAllString(text, "98034da3264217de")))
	}
	return all
}

// file writes a file, and returns its path. The page has the name alone.
func (m *mistake) file(name, text string) string {
	path := filepath.Join(m.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.Fatal(err)
	}
	return path
}

// command runs a command, as somebody at a shell does.
func (m *mistake) command(code int, args ...string) {
	m.Helper()
	var out bytes.Buffer
	if got := run(m.Context(), args, &out, &out); got != code {
		m.Errorf("%q: exit code %d, want %d", args, got, code)
	}
	words := []string{"$ bailiwick"}
	for _, arg := range args {
		words = append(words, shellWord(arg))
	}
	m.out = append(m.out, strings.Join(words, " ")+"\n"+out.String())
}

// A ledger takes in an audit record, while others write to it.
type ledger struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *ledger) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *ledger) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// audit shows how the last line of an audit record ends.
func (m *mistake) audit(l *ledger) {
	m.Helper()
	lines := strings.Split(strings.TrimSpace(l.String()), "\n")
	line := lines[len(lines)-1]
	i := strings.Index(line, `"reason":`)
	if i < 0 {
		m.Errorf("no reason in the audit record: %s", l)
		return
	}
	m.out = append(m.out, "[...] "+line[i:]+"\n")
}

// An oddServer is one that differs from the demonstration's.
type oddServer struct {
	config string
	issuer string           // of tokens; "" for the demonstration's
	clock  func() time.Time // nil for the right one
}

// serve starts a server, on the demonstration's objects, and returns what asks
// it with a token of ztunnel-a, and its audit record.
func (m *mistake) serve(o oddServer) (d *demonstration, audit *ledger) {
	m.Helper()
	if o.clock == nil {
		o.clock = time.Now
	}
	if o.issuer == "" {
		o.issuer = demoIssuer
	}
	audit = &ledger{}
	d, err := newDemonstration("127.0.0.1:0", io.Discard, discard())
	if err != nil {
		m.Fatal(err)
	}
	c, err := parseConfig([]byte(o.config + "\nservingNames: [localhost]\nlimits: {drainDelay: 1ns}\n"))
	if err != nil {
		m.Fatal(err)
	}
	inv, err := d.objects.inventory(o.clock)
	if err != nil {
		m.Fatal(err)
	}
	tokens, err := token.New(token.Config{Issuers: []string{o.issuer}, FetchKeys: d.signer.keys, Now: o.clock})
	if err != nil {
		m.Fatal(err)
	}
	d.service, err = newService(parts{
		config: c, policy: c.policy(inv, authz.ServiceAccount{}, o.clock), authenticate: tokens.Verify, authority: d.authority,
		audit: slog.NewJSONHandler(audit, nil), log: discard(), metrics: prometheus.NewRegistry(), listener: d.listener, now: o.clock,
		ready: func() error { return nil },
	})
	if err != nil {
		m.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.service.run(ctx) }()
	m.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			m.Error(err)
		}
	})
	m.names = append(m.names, d.address(), "localhost:15012")
	m.file("root-cert.pem", d.authority.BundlePEM())
	return d, audit
}

// ask makes a request for an identity with a token of ztunnel-a, and shows what
// the client prints and what the server writes down.
func (m *mistake) ask(d *demonstration, audit *ledger, token func(*demonstration, authz.Caller) (string, error), identity string) {
	m.Helper()
	caller, err := d.objects.caller("istio-system/ztunnel-a")
	if err != nil {
		m.Fatal(err)
	}
	text, err := token(d, caller)
	if err != nil {
		m.Fatal(err)
	}
	m.command(exitRefused, "request", "--address", d.address(), "--server-name", "localhost",
		"--root", filepath.Join(m.dir, "root-cert.pem"), "--token", m.file("token", text), "--identity", identity)
	m.audit(audit)
}

const cartIdentity = "spiffe://cluster.local/ns/shop/sa/cart"

func wrongAccount(m *mistake) {
	const typo = "nodeAgents: [istio-system/ztunel]\n"
	config := m.file("config.yaml", quick+typo)
	m.runServe(newFakeAPI(m.T, mustSigner(m.T)), config, "does not exist", nil)
	d, audit := m.serve(oddServer{config: typo})
	m.ask(d, audit, goodToken, cartIdentity)
	m.command(exitFailed, "explain", "--config", config, "--objects", m.file("cluster.yaml", string(demoCluster)), "--node", "node-a", "--identity", cartIdentity)
}

func wrongTrustDomain(m *mistake) {
	const identity = "spiffe://example.org/ns/shop/sa/cart"
	d, audit := m.serve(oddServer{})
	m.ask(d, audit, goodToken, identity)
	m.command(exitRefused, "explain", "--objects", m.file("cluster.yaml", string(demoCluster)), "--node", "node-a", "--identity", identity)
}

func wrongAudience(m *mistake) {
	d, audit := m.serve(oddServer{})
	m.ask(d, audit, tokenForAPI, cartIdentity)
}

func wrongClock(m *mistake) {
	off := func(by time.Duration) func() time.Time { return func() time.Time { return m.began.Add(by) } }
	at := func(now time.Time, life time.Duration) func(*demonstration, authz.Caller) (string, error) {
		return func(d *demonstration, c authz.Caller) (string, error) {
			return d.signer.token(c, token.DefaultAudience, now, life)
		}
	}
	d, audit := m.serve(oddServer{clock: off(-10 * time.Minute)})
	m.ask(d, audit, at(m.began, time.Hour), cartIdentity)
	d, audit = m.serve(oddServer{clock: off(0)})
	m.ask(d, audit, at(m.began.Add(-70*time.Minute), time.Hour), cartIdentity)
	d, _ = m.serve(oddServer{clock: off(10 * time.Minute)})
	m.command(exitUnknown, "request", "--address", d.address(), "--server-name", "localhost",
		"--root", filepath.Join(m.dir, "root-cert.pem"), "--token", filepath.Join(m.dir, "token"), "--identity", cartIdentity)
	early := newSet(m.T, m.began.Add(10*time.Minute))
	m.check(early)
}

// check checks key material, which the page has in /etc/cacerts.
func (m *mistake) check(files map[string]string) {
	m.Helper()
	dir := m.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			m.Fatal(err)
		}
	}
	m.names = append(m.names, dir, "/etc/cacerts")
	m.command(exitRefused, "check", "--material", dir)
}

func mixedUpFiles(m *mistake) {
	one, other := newSet(m.T, m.began.Add(-time.Hour)), newSet(m.T, m.began.Add(-time.Hour))
	m.check(with(one, "ca-cert.pem", other["ca-cert.pem"]))
	m.check(with(one, "ca-cert.pem", one["leaf.pem"]))
	m.check(with(one, "root-cert.pem", other["root-cert.pem"]))
}

func keyAlone(m *mistake) {
	one, other := newSet(m.T, m.began.Add(-time.Hour)), newSet(m.T, m.began.Add(-time.Hour))
	m.check(map[string]string{"ca-key.pem": one["ca-key.pem"], "cert-chain.pem": one["cert-chain.pem"], "root-cert.pem": one["root-cert.pem"]})
	m.check(with(one, "ca-key.pem", other["ca-key.pem"]))
}

func with(files map[string]string, name, text string) map[string]string {
	all := map[string]string{name: text}
	for n := range files {
		if n != name && n != "leaf.pem" {
			all[n] = files[n]
		}
	}
	return all
}

// newSet makes key material, and a leaf under it whose key is the issuer's, so
// that it is not the key by which it is found out.
func newSet(t *testing.T, from time.Time) map[string]string {
	t.Helper()
	issue := func(name string, isCA bool, key, signer *ecdsa.PrivateKey, parent *x509.Certificate) *x509.Certificate {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: from.AddDate(1, 0, 0),
			BasicConstraintsValid: true, IsCA: isCA, KeyUsage: x509.KeyUsageDigitalSignature,
		}
		if isCA {
			template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
		}
		if parent == nil {
			parent = template
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	keys := make([]*ecdsa.PrivateKey, 2)
	for i := range keys {
		var err error
		if keys[i], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	root := issue("root", true, keys[0], keys[0], nil)
	issuer := issue("issuer", true, keys[1], keys[0], root)
	der, err := x509.MarshalPKCS8PrivateKey(keys[1])
	if err != nil {
		t.Fatal(err)
	}
	text := func(certs ...*x509.Certificate) string { return string(encodeAll(certs)) }
	return map[string]string{
		"ca-cert.pem":    text(issuer),
		"ca-key.pem":     string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"cert-chain.pem": text(issuer),
		"root-cert.pem":  text(root),
		"leaf.pem":       text(issue("ca.example.org", false, keys[1], keys[1], issuer)),
	}
}

// runServe runs the command until it has logged what is awaited, shows that
// line, and asks more before it ends.
func (m *mistake) runServe(api *fakeAPI, config, awaited string, more func(grpc, http string, audit *ledger)) {
	m.Helper()
	ctx, stop := context.WithTimeout(m.Context(), 20*time.Second)
	defer stop()
	stderr, audit := &lineWaiter{text: awaited, found: make(chan string, 1)}, &ledger{}
	m.names = append(m.names, filepath.Dir(api.kubeconfig)+"/", "")
	dir := cacerts(m.T)
	m.file("root-cert.pem", readFile(m.T, filepath.Join(dir, "root-cert.pem")))
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"serve", "--config", config, "--material", dir, "--kubeconfig", api.kubeconfig, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}, audit, stderr)
	}()
	select {
	case line := <-stderr.found:
		m.out = append(m.out, line)
	case <-ctx.Done():
		m.Errorf("%q was not logged in\n%s", awaited, stderr.String())
	case code := <-ended:
		m.Fatalf("exit code %d after\n%s", code, stderr.String())
	}
	if more != nil {
		var serving struct{ Msg, Address, HTTP string }
		for line := range strings.Lines(stderr.String()) {
			if err := json.Unmarshal([]byte(line), &serving); err != nil {
				m.Fatal(err)
			}
			if serving.Msg == "serving" {
				break
			}
		}
		more(serving.Address, serving.HTTP, audit)
	}
	stop()
	if code := <-ended; code != 0 {
		m.Errorf("exit code %d after\n%s", code, stderr.String())
	}
}

// A lineWaiter is a log that tells of the first line with a text.
type lineWaiter struct {
	ledger

	text  string
	found chan string
}

func (l *lineWaiter) Write(line []byte) (int, error) {
	if strings.Contains(string(line), l.text) {
		select {
		case l.found <- string(line):
		default: // another one
		}
	}
	return l.ledger.Write(line)
}

// readyz shows the answer of /readyz, once it has a text: what is said before is
// a matter of which list came first.
func (m *mistake) readyz(address, want string) {
	m.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		code, body := m.get("http://" + address + "/readyz")
		if code == http.StatusServiceUnavailable && strings.Contains(body, want) {
			m.out = append(m.out, "$ curl http://localhost:15014/readyz\n"+body)
			return
		}
		<-tick.C
	}
	m.Errorf("/readyz never says %q", want)
}

func (m *mistake) get(url string) (int, string) {
	m.Helper()
	resp, err := http.Get(url) //nolint:noctx // it is a test's own server
	if err != nil {
		m.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		m.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

const quick = "servingNames: [localhost]\nlimits: {drainDelay: 1ns}\n"

func missingRole(m *mistake) {
	api := newFakeAPI(m.T, mustSigner(m.T))
	api.forbidden = map[string]bool{"list pods": true} // and no watch, lest it be a matter of which comes first
	m.runServe(api, m.file("config.yaml", quick), "asking the API server failed", func(_, http string, _ *ledger) { m.readyz(http, "forbidden") })
}

func forbiddenKeys(m *mistake) {
	s := mustSigner(m.T)
	api := newFakeAPI(m.T, s)
	api.forbidden = map[string]bool{"get /openid/v1/jwks": true}
	m.runServe(api, m.file("config.yaml", quick+"tokenReview: \"off\"\n"), "token keys not read", func(grpc, http string, audit *ledger) {
		m.readyz(http, "token keys")
		m.names = append(m.names, grpc, "localhost:15012")
		text, err := s.token(authz.Caller{ServiceAccount: authz.ServiceAccount{Namespace: "shop", Name: "cart"}, ServiceAccountUID: "u", Pod: "cart-1", PodUID: "p", Node: "n", NodeUID: "n"}, token.DefaultAudience, time.Now(), time.Hour)
		if err != nil {
			m.Fatal(err)
		}
		m.command(exitUnknown, "request", "--address", grpc, "--server-name", "localhost",
			"--root", filepath.Join(m.dir, "root-cert.pem"), "--token", m.file("token", text))
		m.audit(audit)
	})
}

func portTaken(m *mistake) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nobody has listened
	_, port, _ := net.SplitHostPort(l.Addr().String())
	dir := cacerts(m.T)
	m.names = append(m.names, dir, "/etc/cacerts", l.Addr().String(), "127.0.0.1:15012", ":"+port, ":15012")
	m.command(exitFailed, "serve", "--material", dir, "--kubeconfig", m.kubeconfig("http://127.0.0.1:1", ""), "--listen", l.Addr().String())
}

// kubeconfig writes one for the server at a URL.
func (m *mistake) kubeconfig(url, caFile string) string {
	return m.file("kubeconfig", fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: other
clusters: [{name: other, cluster: {server: %q, certificate-authority: %q}}]
contexts: [{name: other, context: {cluster: other, user: nobody}}]
users: [{name: nobody, user: {}}]
`, url, caFile))
}

func anotherCluster(m *mistake) {
	dir := cacerts(m.T)
	closed := httptest.NewServer(nil)
	closed.Close()
	m.names = append(m.names, dir, "/etc/cacerts", closed.Listener.Addr().String(), "10.0.0.1:6443")
	kubeconfig := m.kubeconfig(closed.URL, "")
	m.command(exitFailed, "serve", "--material", dir, "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	m.command(exitFailed, "explain", "--kubeconfig", kubeconfig, "--node", "node-a", "--identity", cartIdentity)

	other := httptest.NewUnstartedServer(http.NotFoundHandler())
	other.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	other.StartTLS()
	defer other.Close()
	m.names = append(m.names, other.Listener.Addr().String(), "10.0.0.1:6443")
	kubeconfig = m.kubeconfig(other.URL, filepath.Join(dir, "root-cert.pem"))
	m.command(exitFailed, "serve", "--material", dir, "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")

	d, audit := m.serve(oddServer{issuer: "https://oidc.other.example"})
	m.ask(d, audit, goodToken, cartIdentity)
}
