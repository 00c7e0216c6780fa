package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authpb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"
)

// childEnv tells the test binary to be a server, so that the CPU time of the
// server alone can be read.
const childEnv = "BAILIWICK_BENCH_SERVER"

// profileEnv names the file for a profile of the server's CPU time in its first
// eight seconds.
const profileEnv = "BAILIWICK_BENCH_PROFILE"

func TestMain(m *testing.M) {
	if os.Getenv(stubbornEnv) != "" {
		stubborn()
	}
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	if err := benchServer(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// benchServer serves the demonstration's cluster, and says where, and with
// which token, in a line of JSON.
func benchServer() error {
	d, err := newDemonstration("127.0.0.1:0", io.Discard, discard())
	if err != nil {
		return err
	}
	caller, err := d.objects.caller("istio-system/ztunnel-a")
	if err != nil {
		return err
	}
	token, err := goodToken(d, caller)
	if err != nil {
		return err
	}
	go d.service.run(context.Background()) //nolint:errcheck // it runs until the process is killed
	if err := json.NewEncoder(os.Stdout).Encode([]string{d.address(), token, d.authority.BundlePEM()}); err != nil {
		return err
	}
	if file := os.Getenv(profileEnv); file != "" {
		if err := profile(file, 8*time.Second); err != nil {
			return err
		}
	}
	time.Sleep(time.Hour)
	return nil
}

func profile(file string, d time.Duration) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	time.Sleep(d)
	pprof.StopCPUProfile()
	return f.Close()
}

// BenchmarkRequest measures whole requests, through TLS and gRPC on loopback, 8
// at a time on one connection, as one ztunnel sends them. The CSR is always the
// same; the server does not know that. server-µs/op is the CPU time of the
// server's process for each.
func BenchmarkRequest(b *testing.B) {
	server := exec.Command(os.Args[0], "-test.run=^$")
	server.Env = append(os.Environ(), childEnv+"=1")
	out, err := server.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		server.Process.Kill() //nolint:errcheck // it is a benchmark's
		server.Wait()         //nolint:errcheck // it was killed
	}()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		b.Fatal(err)
	}
	var hello []string
	if err := json.Unmarshal(line, &hello); err != nil {
		b.Fatal(err)
	}
	benchRequests(b, server.Process.Pid, hello[0], hello[1], hello[2])
}

func benchRequests(b *testing.B, pid int, address, token, roots string) {
	b.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(roots))
	c, err := dial(address, "localhost", pool)
	if err != nil {
		b.Fatal(err)
	}
	defer c.close() //nolint:errcheck // a benchmark
	ctx := metadata.AppendToOutgoingContext(b.Context(), "authorization", "Bearer "+token, "clusterid", "Kubernetes")
	rpc := authpb.NewIstioCertificateServiceClient(c.conn)
	req := benchCSR(b)
	if _, err := rpc.CreateCertificate(ctx, req); err != nil {
		b.Fatal(err)
	}
	before := cpuTime(b, pid)
	work := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range work {
				if _, err := rpc.CreateCertificate(ctx, req); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for b.Loop() {
		work <- struct{}{}
	}
	close(work)
	wg.Wait()
	b.ReportMetric(float64((cpuTime(b, pid)-before).Microseconds())/float64(b.N), "server-µs/op")
}

func benchCSR(b *testing.B) *authpb.IstioCertificateRequest {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		b.Fatal(err)
	}
	return &authpb.IstioCertificateRequest{
		Csr:      string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})),
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"ImpersonatedIdentity": structpb.NewStringValue("spiffe://cluster.local/ns/shop/sa/cart")}},
	}
}

// cpuTime returns the CPU time of a process: fields 14 and 15 of proc_pid_stat(5),
// in hundredths of a second.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Skip("skipped: the CPU time of a process is read from /proc, which is not there")
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	var ticks int
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// BenchmarkFloor is what no certificate authority that checks possession, and
// what it signed, can do without: two P-256 verifications and a signature.
func BenchmarkFloor(b *testing.B) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	digest := sha256.Sum256([]byte("x"))
	for b.Loop() {
		signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
		if err != nil {
			b.Fatal(err)
		}
		for range 2 {
			if !ecdsa.VerifyASN1(&key.PublicKey, digest[:], signature) {
				b.Fatal("it does not verify")
			}
		}
	}
}
