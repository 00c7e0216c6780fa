package token_test

import (
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/k8s/token"
)

func BenchmarkVerifyCached(b *testing.B) {
	v := newAPI(rsaSigner()).verifier(b)
	text := realistic(b)
	authorization, clusterID := []string{"Bearer " + text}, []string{"Kubernetes"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Verify(b.Context(), authorization, clusterID); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(text)), "token-bytes")
}

func BenchmarkVerifyCachedParallel(b *testing.B) {
	v := newAPI(rsaSigner()).verifier(b)
	authorization := []string{"Bearer " + realistic(b)}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := v.Verify(b.Context(), authorization, nil); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkVerifyNew(b *testing.B) {
	for _, s := range []signer{rsaSigner(), p256Signer(), p384Signer(), p521Signer()} {
		b.Run(s.method.Alg(), func(b *testing.B) {
			v := newAPI(s).verifier(b, func(c *token.Config) { c.CacheSize = 1 })
			now := time.Now()
			// Two tokens by turns, and room for one.
			pair := [][]string{{"Bearer " + ztunnel(now, s).String()}, {"Bearer " + ztunnel(now.Add(-time.Second), s).String()}}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := v.Verify(b.Context(), pair[i%2], nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// realistic returns a token like those of a cluster, with its long names.
func realistic(tb testing.TB) string {
	tb.Helper()
	d := ztunnel(time.Now(), rsaSigner())
	d.claims["kubernetes.io"] = object{
		"namespace":      "istio-system",
		"serviceaccount": object{"name": "ztunnel", "uid": "4a3f1f0e-6f4b-4c86-8a8e-0d3ad2b3c4f5"},
		"pod":            object{"name": "ztunnel-x7k2p", "uid": "c0d8c9b1-3b1c-4b53-9c39-7f7d0a3f1e2d"},
		"node":           object{"name": "ip-10-11-12-13.eu-central-1.compute.internal", "uid": "9b0c5b87-2c47-4b38-8d0c-2f1f5d6a7b8c"},
	}
	return d.String()
}
