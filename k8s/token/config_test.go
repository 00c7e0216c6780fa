package token

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestConfigDefaults has the defaults, and that they take the place of nothing
// that was set.
func TestConfigDefaults(t *testing.T) {
	functions := cmpopts.IgnoreFields(Config{}, "Now", "Log")
	want := Config{
		Audiences: []string{"istio-ca"}, MaxTokenLife: 24 * time.Hour,
		KeyRefresh: 5 * time.Minute, MinKeyRefresh: 10 * time.Second, MaxKeyAge: time.Hour,
		ReviewRate: 100, ReviewBurst: 600, VerdictLife: 10 * time.Second,
		CacheSize: 32768, VerdictCacheSize: 4096,
	}
	var got Config
	got.setDefaults()
	if diff := cmp.Diff(want, got, functions); diff != "" || got.Now == nil || got.Log == nil {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	got = Config{Audiences: []string{"a"}}
	for _, field := range reflect.ValueOf(&got).Elem().Fields() {
		if field.CanInt() {
			field.SetInt(7)
		}
	}
	want = got
	got.setDefaults()
	if diff := cmp.Diff(want, got, functions); diff != "" {
		t.Errorf("what was set (-want +got):\n%s", diff)
	}
}

// TestConfigNumbers has each number below zero, and times in and out of order.
func TestConfigNumbers(t *testing.T) {
	good := Config{Issuers: []string{"x"}, FetchKeys: func(context.Context) ([]byte, error) { return nil, nil }}
	for _, of := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		c := good
		if field := reflect.ValueOf(&c).Elem().FieldByIndex(of.Index); field.CanInt() {
			field.SetInt(-1)
			if err := c.check(); err == nil || !strings.Contains(err.Error(), "is negative: -1") {
				t.Errorf("%s of -1: %v", of.Name, err)
			}
		}
	}
	for _, tt := range []struct {
		least, every, most time.Duration
		ok                 bool
	}{
		{time.Hour, time.Hour, time.Hour, true},
		{time.Hour + 1, time.Hour, time.Hour, false},
		{time.Hour, time.Hour + 1, time.Hour, false},
	} {
		c := good
		c.MinKeyRefresh, c.KeyRefresh, c.MaxKeyAge = tt.least, tt.every, tt.most
		if err := c.check(); (err == nil) != tt.ok {
			t.Errorf("%v, %v, %v: %v", tt.least, tt.every, tt.most, err)
		}
	}
}
