//go:build gpu && cgo && linux

package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/cuda/engine"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
)

// odd is a model whose tensors do not begin at multiples of four values.
func odd(t *testing.T) (*model.Description, model.Input, *kintsugi.Layout) {
	t.Helper()
	in := model.Input{Channels: 1, Height: 7, Width: 7, Classes: 10}
	d, err := model.Describe("test", in, model.Defaults{}, model.Flatten{}, model.Dense{Name: "a", Out: 27}, model.ReLU{}, model.Dense{Name: "b", Out: 10})
	if err != nil {
		t.Fatal(err)
	}
	l, err := kintsugi.NewLayout(d.Tensors())
	if err != nil {
		t.Fatal(err)
	}
	return d, in, l
}

// Gradients that are encoded on the GPU have the bits of those that a worker encodes on the host,
// whatever becomes of the pushes: several are open at the same time, some are dropped, and one is
// computed a second time. Work is done as late as possible, and at once.
func TestCompressedGradientsAreThoseOfTheHost(t *testing.T) {
	for i, spec := range []string{"bf16", "fp16", "int8", "int8:stochastic", "sign", "int8-nofeedback", "topk:0.2", "topk:0.1:fp32", "topk:0.2-nofeedback", "powersgd:2", "powersgd:3-nofeedback", "sparse"} {
		t.Run(spec, func(t *testing.T) {
			codec, err := compress.Parse(spec)
			if err != nil {
				t.Fatal(err)
			}
			d, in, l := odd(t)
			switch codec.Encoding() {
			case kernels.Sparse16, kernels.Sparse32: // the emulation takes a millisecond for each chunk, so this model has fewer, also at odd places
				d, in = bigrams(t), tokens
				l, _ = kintsugi.NewLayout(d.Tensors())
			}
			t.Setenv(emulate.Schedule, fmt.Sprint(1+2*(i%2)))
			settled := []string{"", "count 0", "unsent", "", "drop 1", "count 3", "count 4, drop line", "", "count 5, count 7", ""}
			params, grads, losses := initial(t, d), make([][]float32, len(settled)), make([]float64, len(settled))
			emulate.Calm(t, func() {
				plain := open(t, d, engine.Options{})
				for n := range grads {
					grads[n] = make([]float32, l.Values)
					if losses[n], err = plain.Gradient(params, grads[n], modeltest.RandomBatch(in, 3, uint64(n))); err != nil {
						t.Fatal(err)
					}
				}
			})
			e := open(t, d, engine.Options{})
			c, err := engine.NewCompressed(e, l, codec, 7)
			if err != nil {
				t.Fatal(err)
			}
			host := compress.NewFeedback(codec, l, 7)
			var ids []kintsugi.PushID
			for n, settle := range settled {
				id := kintsugi.PushID{Line: 1, Slot: 2, Version: kintsugi.Step(n)}
				ids = append(ids, id)
				b := modeltest.RandomBatch(in, 3, uint64(n))
				for range 1 + n%2 { // every other one twice: the first was not sent
					if loss, err := c.Gradient(t.Context(), params, id, b); err != nil || loss != losses[n] {
						t.Fatalf("push %d: loss %v, error %v; want %v", n, loss, err, losses[n])
					}
				}
				if settle == "unsent" { // nobody has asked for its payloads, and another push is next
					continue
				}
				same(t, c, host, codec, id, l, grads[n])
				for _, settle := range strings.Split(settle, ", ") {
					var which int
					switch _, err := fmt.Sscanf(settle, "count %d", &which); {
					case settle == "drop line":
						got, want := c.Drop(), host.Drop()
						if !(math.Abs(got-want) <= 1e-6*want) || spec == "int8" && want == 0 {
							t.Errorf("push %d: a residual of norm %v is given up, want %v", n, got, want)
						}
					case err == nil:
						c.Counted(ids[which])
						host.Counted(ids[which])
					case settle != "":
						_, _ = fmt.Sscanf(settle, "drop %d", &which)
						c.Dropped(ids[which])
						host.Dropped(ids[which])
					}
				}
			}
			if e.Eager() != nil {
				t.Errorf("no gradient was computed in one launch: %v", e.Eager())
			}
		})
	}
}

// same compares the payloads of a push with the host's payloads of the same gradient.
func same(t *testing.T, c *engine.Compressed, host *compress.Feedback, codec compress.Codec, id kintsugi.PushID, l *kintsugi.Layout, grads []float32) {
	t.Helper()
	for i, k := range l.Chunks {
		want := host.Encode(nil, id, kintsugi.ChunkID(i), grads[k.Lo:k.Hi])
		got, norm := c.Payload(kintsugi.ChunkID(i))
		if !bytes.Equal(got, want) {
			t.Fatalf("push %v: chunk %d has other bytes than the host's", id, i)
		}
		values := make([]float32, k.Len())
		if err := kernels.Host.Decode(values, codec.Encoding(), got); err != nil {
			t.Fatal(err)
		}
		if want := kernels.SquaredNorm(values); norm != want {
			t.Fatalf("push %v: chunk %d has squared norm %v, want %v", id, i, norm, want)
		}
	}
}

// A gradient that is not finite is not sent, nor is one that is given up or has a batch that does not
// fit. None of them changes the residual.
func TestAGradientThatFailsIsNotEncoded(t *testing.T) {
	d, in, l := odd(t)
	codec, err := compress.Parse("int8")
	if err != nil {
		t.Fatal(err)
	}
	e := open(t, d, engine.Options{})
	c, err := engine.NewCompressed(e, l, codec, 7)
	if err != nil {
		t.Fatal(err)
	}
	host, plain := compress.NewFeedback(codec, l, 7), open(t, d, engine.Options{})
	params, grads := initial(t, d), make([]float32, l.Values)
	ended, end := context.WithCancel(t.Context())
	end()
	for n, fails := range []error{nil, kintsugi.ErrNotFinite, nil, context.Canceled, nil, kintsugi.ErrUsage, nil} {
		id, ctx := kintsugi.PushID{Line: 1, Version: kintsugi.Step(n)}, t.Context()
		b := modeltest.RandomBatch(in, 3, uint64(n))
		switch fails {
		case kintsugi.ErrNotFinite:
			b.X[5] = float32(math.Inf(1))
		case context.Canceled:
			ctx = ended
		case kintsugi.ErrUsage:
			b.N--
		}
		if _, err := c.Gradient(ctx, params, id, b); !errors.Is(err, fails) {
			t.Fatalf("gradient %d: error %v; want %v", n, err, fails)
		}
		if fails != nil {
			continue
		}
		if _, err := plain.Gradient(params, grads, b); err != nil {
			t.Fatal(err)
		}
		same(t, c, host, codec, id, l, grads)
		c.Counted(id)
		host.Counted(id)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Gradient(t.Context(), params, kintsugi.PushID{Version: 9}, modeltest.RandomBatch(in, 3, 1)); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a gradient of a closed engine: error %v", err)
	}
}
