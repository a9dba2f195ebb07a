package local_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/worker/local"
)

// The model of these tests has two tensors, and its gradients pull the parameters to a point that
// depends on the batch.
var layout = func() *kintsugi.Layout {
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{3, 5}}, {Name: "b", Shape: []int{3}}})
	if err != nil {
		panic(err)
	}
	return l
}()

func pull(_ context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
	loss := 0.0
	for i, p := range params {
		to := float32(math.Sin(float64(i) + 7*float64(id.Version) + 3*float64(id.Sequence) + float64(id.Slot)))
		grads[i] = p - to
		loss += float64(grads[i]*grads[i]) / 2
	}
	return loss, 4, nil
}

func start() []float32 {
	params := make([]float32, layout.Values)
	for i := range params {
		params[i] = 8 + float32(i)
	}
	return params
}

// scalars are those of a schedule that falls, with another rate for the second tensor.
func scalars(version kintsugi.Step, i, tensor int) kernels.Scalars {
	t := float64(i + 1)
	return kernels.Scalars{
		LearningRate: 0.125 / float32(1+int(version)+i) * float32(1+tensor), Momentum: 0.5, Beta1: 0.5, Beta2: 0.75, Epsilon: 1e-8, WeightDecay: 0.25,
		Correction1: float32(1 - math.Pow(0.5, t)), Correction2: float32(1 - math.Pow(0.75, t)),
	}
}

// rate is what ways back are divided by.
func rate(version kintsugi.Step, tensor int) float32 { return scalars(version, 0, tensor).LearningRate }

// byHand takes the local steps of the gradient that id names as the text of package kernels has
// them, one operation at a time.
func byHand(rule kernels.Rule, steps int, clip float64, params []float32, id kintsugi.PushID) (end []float32) {
	w, g := slices.Clone(params), make([]float32, len(params))
	m, v := make([]float32, len(w)), make([]float32, len(w))
	for i := range steps {
		at := id
		at.Version = id.Version*kintsugi.Step(steps) + kintsugi.Step(i)
		_, _, _ = pull(context.Background(), w, g, at)
		weight := float32(1)
		if norm := math.Sqrt(kernels.SquaredNorm(g[:15]) + kernels.SquaredNorm(g[15:])); clip > 0 && norm > clip {
			weight = float32(clip / norm)
		}
		for j := range w {
			x := scalars(id.Version, i, tensorOf(j))
			scaled := float32(weight * g[j])
			h := scaled + float32(x.WeightDecay*w[j])
			switch rule {
			case kernels.SGD:
				w[j] -= float32(x.LearningRate * h)
			case kernels.Momentum:
				m[j] = float32(x.Momentum*m[j]) + h
				w[j] -= float32(x.LearningRate * m[j])
			case kernels.Adam:
				m[j] = float32(x.Beta1*m[j]) + float32((1-x.Beta1)*h)
				v[j] = float32(x.Beta2*v[j]) + float32((1-x.Beta2)*float32(h*h))
				alpha, rho := x.LearningRate/x.Correction1, 1/float32(math.Sqrt(float64(x.Correction2)))
				w[j] -= float32(alpha*m[j]) / (float32(float32(math.Sqrt(float64(v[j])))*rho) + x.Epsilon)
			}
		}
	}
	return w
}

// wayBack is the gradient of local steps that ended there.
func wayBack(end []float32, version kintsugi.Step) (grads []float32) {
	for i, from := range start() {
		grads = append(grads, (from-end[i])/rate(version, tensorOf(i)))
	}
	return grads
}

// tensorOf returns the tensor of a value.
func tensorOf(i int) int {
	return layout.Chunks[slices.IndexFunc(layout.Chunks, func(c kintsugi.Chunk) bool { return i < c.Hi })].Tensor
}

func TestAGradientIsTheWayBackOfTheLocalSteps(t *testing.T) {
	for _, device := range kernels.Devices() {
		for _, rule := range []kernels.Rule{kernels.SGD, kernels.Momentum, kernels.Adam} {
			for _, clip := range []float64{0, 2} {
				for _, steps := range []int{1, 2, 7} {
					cfg := local.Config{Plan: local.Plan{Steps: steps, Scalars: scalars, Rate: rate}, Layout: layout, Device: device, Gradient: pull, Rule: rule}
					if clip > 0 {
						cfg.Clipped = func(squared float64) float64 { return min(1, clip/math.Sqrt(squared)) }
					}
					gradient := local.New(cfg)
					for version := range kintsugi.Step(3) { // each begins anew
						params, grads := start(), make([]float32, layout.Values)
						id := kintsugi.PushID{Slot: 2, Version: version, Sequence: 1}
						if _, _, err := gradient(t.Context(), params, grads, id); err != nil {
							t.Fatal(err)
						}
						if !slices.Equal(params, start()) {
							t.Fatal("the parameters have changed")
						}
						want := wayBack(byHand(rule, steps, clip, params, id), version)
						if !slices.Equal(grads, want) {
							t.Errorf("%s, %v, clip %v, %d steps on version %d: %v, want %v", device.Name(), rule, clip, steps, version, grads, want)
						}
					}
				}
			}
		}
	}
}

// A run without local steps has the same batches, one after the other.
func TestEachBatchIsUsedOnce(t *testing.T) {
	const steps = 3
	var versions []kintsugi.Step
	gradient := local.New(local.Config{
		Plan: local.Plan{Steps: steps, Scalars: scalars, Rate: rate}, Layout: layout, Device: kernels.Host, Rule: kernels.SGD,
		Gradient: func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
			if id.Slot != 1 || id.Sequence != 5 || id.Line != 9 {
				t.Errorf("it asks for %v", id)
			}
			versions = append(versions, id.Version)
			clear(grads)
			return float64(id.Version), 10 + len(versions), nil
		},
	})
	for v := range kintsugi.Step(2) {
		loss, examples, err := gradient(t.Context(), start(), make([]float32, layout.Values), kintsugi.PushID{Line: 9, Slot: 1, Version: v, Sequence: 5})
		if want := float64(steps*v + 1); err != nil || loss != want {
			t.Errorf("loss %v, %v, want the mean %v", loss, err, want)
		}
		if want := []int{11 + 12 + 13, 14 + 15 + 16}[v]; examples != want {
			t.Errorf("%d examples, want %d", examples, want)
		}
	}
	if !slices.Equal(versions, []kintsugi.Step{0, 1, 2, 3, 4, 5}) {
		t.Errorf("versions %v", versions)
	}
}

// A gradient that nobody needs any more ends with the local step under way, and the next one is
// none the worse for it.
func TestAGradientThatIsGivenUpLeavesNothingBehind(t *testing.T) {
	broken := errors.New("broken")
	for _, x := range []struct {
		name  string
		fails func(cancel context.CancelFunc) error
		is    error
		says  string
	}{
		{"its context ends", func(cancel context.CancelFunc) error { cancel(); return nil }, context.Canceled, "local step 2 of 4"},
		{"a batch fails", func(context.CancelFunc) error { return broken }, broken, "local step 2 of 4: broken"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		calls, fail := 0, true
		gradient := local.New(local.Config{
			Plan: local.Plan{Steps: 4, Scalars: scalars, Rate: rate}, Layout: layout, Device: kernels.Host, Rule: kernels.Adam,
			Gradient: func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
				if calls++; fail && calls == 2 {
					return 0, 0, x.fails(cancel)
				}
				return pull(ctx, params, grads, id)
			},
		})
		grads := make([]float32, layout.Values)
		_, _, err := gradient(ctx, start(), grads, kintsugi.PushID{})
		if !errors.Is(err, x.is) || !strings.HasPrefix(err.Error(), x.says) || calls != 2 {
			t.Errorf("%s: %v after %d calls", x.name, err, calls)
		}
		fail = false
		if _, _, err := gradient(t.Context(), start(), grads, kintsugi.PushID{}); err != nil {
			t.Fatal(err)
		}
		if want := wayBack(byHand(kernels.Adam, 4, 0, start(), kintsugi.PushID{}), 0); !slices.Equal(grads, want) {
			t.Errorf("%s: then it is %v, want %v", x.name, grads, want)
		}
	}
}

// A gradient that is not finite is not hidden by the steps that follow it, nor by clipping: the worker
// looks at what it pushes.
func TestWhatIsNotFiniteShows(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, clipped := range []func(float64) float64{nil, func(squared float64) float64 { return min(1, 1/math.Sqrt(squared)) }} {
			gradient := local.New(local.Config{
				Plan: local.Plan{Steps: 3, Scalars: scalars, Rate: rate, Clipped: clipped}, Layout: layout, Device: kernels.Best(), Rule: kernels.Adam,
				Gradient: func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
					loss, n, err := pull(ctx, params, grads, id)
					if id.Version == 1 {
						grads[4] = float32(bad)
					}
					return loss, n, err
				},
			})
			grads := make([]float32, layout.Values)
			if _, _, err := gradient(t.Context(), start(), grads, kintsugi.PushID{}); err != nil {
				t.Fatal(err)
			}
			if i, err := kernels.Best().Finite(grads); err != nil || i < 0 {
				t.Errorf("%v, clipped: %v: the gradient is %v", bad, clipped != nil, grads)
			}
		}
	}
}

// At the end of a schedule that falls to zero, nothing moves, and nothing is pushed.
func TestNoRateMakesNoGradient(t *testing.T) {
	gradient := local.New(local.Config{
		Layout: layout, Device: kernels.Host, Gradient: pull, Rule: kernels.SGD,
		Plan: local.Plan{
			Steps:   3,
			Scalars: func(kintsugi.Step, int, int) kernels.Scalars { return kernels.Scalars{} },
			Rate:    func(kintsugi.Step, int) float32 { return 0 },
		},
	})
	grads := make([]float32, layout.Values)
	if _, _, err := gradient(t.Context(), start(), grads, kintsugi.PushID{}); err != nil || !slices.Equal(grads, make([]float32, layout.Values)) {
		t.Errorf("%v, %v", grads, err)
	}
}

// broken is a device that fails in the middle of a step.
type broken struct{ kernels.Device }

func (broken) Step(*kernels.Step) (kernels.Products, error) {
	return kernels.Products{}, errors.New("the device is lost")
}

func TestADeviceThatFailsIsNamedWithItsStep(t *testing.T) {
	gradient := local.New(local.Config{Plan: local.Plan{Steps: 4, Scalars: scalars, Rate: rate}, Layout: layout, Device: broken{kernels.Host}, Gradient: pull, Rule: kernels.SGD})
	_, _, err := gradient(t.Context(), start(), make([]float32, layout.Values), kintsugi.PushID{})
	if want := "local step 1 of 4: step on tensor w: the device is lost"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
