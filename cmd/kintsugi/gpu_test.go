package main

import (
	"errors"
	"testing"

	kintsugi "github.com/kintsugi-ml/kintsugi"
)

func TestDevicesAreWritten(t *testing.T) {
	for s, want := range map[string]gpu{
		"cpu":         {},
		"cuda":        {wanted: true},
		"cuda:3":      {wanted: true, ordinal: 3},
		"cuda,tf32":   {wanted: true, tf32: true},
		"cuda:1,tf32": {wanted: true, ordinal: 1, tf32: true},
	} {
		if got, err := parseDevice(s); err != nil || got != want {
			t.Errorf("%q is %+v, error %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda,fp8", "cpu,tf32", "auto,tf32", "cuda:999"} {
		if got, err := parseDevice(s); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%q is %+v, error %v; want ErrUsage", s, got, err)
		}
	}
}
