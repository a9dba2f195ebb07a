package main

import (
	"bytes"
	"context"
	"errors"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// run itself compares the bits of the undisturbed run with those of the other.
func TestTheExampleSurvivesADeathAndSaysSo(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "lives of the server: 1 and 2"); n != 2 {
		t.Errorf("the server has died in %d of 2 runs:\n%s", n, &out)
	}
}

func TestTheRegressionFindsItsPlane(t *testing.T) {
	j, err := regression()
	if err != nil {
		t.Fatal(err)
	}
	r, err := train(t.Context(), j, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range r.params { // the least squares are within 3·0.1·√3/√1024 ≈ 0.02, and with a constant rate Adam keeps moving around them
		if math.Abs(float64(p-plane[i])) > 0.1 {
			t.Errorf("parameter %d is %.3f, want about %v", i, p, plane[i])
		}
	}
}

func TestAGradientThatGoesWrongEndsTheRun(t *testing.T) {
	j, err := regression()
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the examples are gone")
	j.gradient = func() (worker.Gradient, func() error, error) {
		return func(_ context.Context, _, _ []float32, id kintsugi.PushID) (float64, int, error) {
			if id.Slot == 1 {
				return 0, 0, broken
			}
			return 1, 1, nil
		}, nothing, nil
	}
	if _, err := train(t.Context(), j, 0); !errors.Is(err, broken) {
		t.Errorf("the run ended with %v, want %v", err, broken)
	}
}

func TestPublicPackagesAreEnough(t *testing.T) {
	sources, err := filepath.Glob("*.go")
	if err != nil || len(sources) == 0 {
		t.Fatal(sources, err)
	}
	for _, name := range sources {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if strings.Contains(i.Path.Value, "/internal/") {
				t.Errorf("%s imports %s, which a program outside this module cannot", name, i.Path.Value)
			}
		}
	}
}
