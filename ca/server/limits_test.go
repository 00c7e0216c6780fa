package server

import (
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestLimits has the defaults, and that they take the place of nothing that was
// set.
func TestLimits(t *testing.T) {
	want := Limits{
		Deadline: 10 * time.Second,
		InFlight: 256 * runtime.GOMAXPROCS(0), InFlightPerNode: 32,
		QueuePerNode: 64, QueueWait: 2 * time.Second,
		StreamsPerConnection: 100,
		MessageSize:          65536, HeaderSize: 32768,
		AuditRepeats: 4096, AuditLinesPerCaller: 64,
		Connections: 16384, ConnectionsPerHost: 1024,
		ConnectionAge: 30 * time.Minute, ConnectionGrace: 30 * time.Second, ConnectionIdle: 5 * time.Minute,
		DrainDelay: 3 * time.Second, DrainTimeout: 20 * time.Second,
	}
	if diff := cmp.Diff(want, Limits{}.withDefaults()); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	var set Limits
	for _, field := range reflect.ValueOf(&set).Elem().Fields() {
		if field.CanInt() {
			field.SetInt(7)
		} else {
			field.SetUint(7)
		}
	}
	if diff := cmp.Diff(set, set.withDefaults()); diff != "" {
		t.Errorf("what was set (-want +got):\n%s", diff)
	}
}
