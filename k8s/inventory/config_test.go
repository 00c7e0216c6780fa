package inventory

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestZeroIsNoLimit has each limit at zero, where its default would be missing.
func TestZeroIsNoLimit(t *testing.T) {
	good := newTestInventory(t).config
	good.LiveBurst = nodeBurst // the least
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for i := range reflect.TypeFor[Config]().NumField() {
		c := good
		if field := reflect.ValueOf(&c).Elem().Field(i); field.CanInt() || field.CanFloat() {
			field.SetZero()
			name, want := reflect.TypeFor[Config]().Field(i).Name, "must be positive"
			if name == "LiveBurst" {
				want = "at least what one node may have"
			}
			if err := c.check(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s is 0: %v, want %q", name, err, want)
			}
		}
	}
}

// TestDefaults has the defaults, and that they take the place of nothing that was
// set.
func TestDefaults(t *testing.T) {
	want := Config{
		MaxStaleness: 5 * time.Minute, ProbeEvery: 30 * time.Second, Hold: time.Second,
		MaxWaiting: 4, MaxConfirming: 128, MaxJoining: 32,
		LiveRequests: 200, LiveBurst: 400, LiveTimeout: 5 * time.Second,
	}
	var got Config
	got.setDefaults()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	var set Config
	for _, field := range reflect.ValueOf(&set).Elem().Fields() {
		switch {
		case field.CanInt():
			field.SetInt(7)
		case field.CanFloat():
			field.SetFloat(7)
		}
	}
	got = set
	got.setDefaults()
	if diff := cmp.Diff(set, got); diff != "" {
		t.Errorf("what was set (-want +got):\n%s", diff)
	}
}
