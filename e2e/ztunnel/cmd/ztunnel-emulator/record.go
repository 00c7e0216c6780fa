package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/bailiwick-ca/bailiwick/e2e/ztunnel"
)

// A line is one fetch, as printed.
type line struct {
	Time     time.Time     `json:"time"`
	Node     string        `json:"node"`
	Identity string        `json:"identity"`
	State    ztunnel.State `json:"state"`
	Took     float64       `json:"tookMilliseconds"`
	Renewal  bool          `json:"renewal"`
	Next     time.Time     `json:"next"`
	Serial   string        `json:"serialNumber,omitempty"`   // decimal, as in config_dump
	NotAfter *time.Time    `json:"expirationTime,omitempty"` // of the certificate in hand
	Error    string        `json:"error,omitempty"`          // of the fetch
	Refused  string        `json:"refusedByPeers,omitempty"` // why, if they do
}

// A summary is what is printed at the end. Latencies are those of all fetches,
// whatever came of them.
type summary struct {
	Fetches  int            `json:"fetches"`
	Renewals int            `json:"renewals"`
	Errors   map[string]int `json:"errors"` // by gRPC code; Unknown are those of the client
	Refused  int            `json:"refusedByPeers"`
	Dropped  int            `json:"dropped"` // by the prefetcher
	Missing  int            `json:"missing"` // identities without a good certificate, at the end
	P50      float64        `json:"p50Milliseconds"`
	P99      float64        `json:"p99Milliseconds"`
}

// A record prints fetches and sums them up. Several goroutines may use it.
type record struct {
	mu   sync.Mutex
	out  *json.Encoder
	err  error // of the first line that could not be written
	sum  summary
	took []time.Duration
}

func newRecord(w io.Writer) *record {
	return &record{out: json.NewEncoder(w), sum: summary{Errors: map[string]int{}}}
}

func (r *record) add(node string, e ztunnel.Event) {
	took := e.Ended.Sub(e.Began)
	l := line{
		Time: e.Ended, Node: node, Identity: e.Identity.String(), State: e.State,
		Took: milliseconds(took), Renewal: e.Renewal, Next: e.Next,
	}
	if c := e.Certificate; c != nil {
		l.Serial, l.NotAfter = c.Leaf.SerialNumber.String(), &c.Leaf.NotAfter
		if err := c.Verify(c.Roots, e.Ended); err != nil {
			l.Refused = err.Error()
		}
	}
	if e.Failure != nil {
		l.Error = e.Failure.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took = append(r.took, took)
	r.count(l, e)
	r.write(l)
}

func (r *record) count(l line, e ztunnel.Event) {
	r.sum.Fetches++
	switch {
	case e.Failure != nil:
		r.sum.Errors[status.Code(e.Failure).String()]++
	case e.Renewal:
		r.sum.Renewals++
	}
	if l.Refused != "" {
		r.sum.Refused++
	}
}

func (r *record) drop(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.Dropped += n
}

func (r *record) write(v any) {
	if err := r.out.Encode(v); r.err == nil {
		r.err = err
	}
}

// end prints the summary and says what is wrong.
func (r *record) end(missing int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.took)
	r.sum.Missing, r.sum.P50, r.sum.P99 = missing, r.quantile(50), r.quantile(99)
	r.write(r.sum)
	var errs error
	if missing > 0 {
		errs = fmt.Errorf("%d identities have no good certificate", missing)
	}
	if r.sum.Refused > 0 {
		errs = errors.Join(errs, fmt.Errorf("%d times peers would not have accepted a certificate", r.sum.Refused))
	}
	return errors.Join(errs, r.err)
}

// quantile returns the latency that so many per cent do not exceed.
func (r *record) quantile(percent int) float64 {
	if len(r.took) == 0 {
		return 0
	}
	return milliseconds(r.took[(len(r.took)*percent+99)/100-1])
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
