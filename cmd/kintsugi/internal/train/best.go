package train

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/export"
)

// bestFile is the file in a run's folder with the parameters of its best evaluation.
const bestFile = "best.safetensors"

// best keeps the parameters of the evaluation with the lowest loss in a file. The file says which
// that is, so a run that goes on after any crash agrees with its file.
type best struct {
	path string
	loss float64       // of the file; NaN: there is none
	step kintsugi.Step // of the file
	was  error         // why the file of an earlier part of the run cannot be read; it is replaced
}

const (
	bestLoss     = "test_loss"
	bestAccuracy = "test_accuracy"
	bestStep     = "step"
)

// openBest returns what is in a file, if there is one.
func openBest(path string) *best {
	b := &best{path: path, loss: math.NaN()}
	f, err := os.Open(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			b.was = err
		}
		return b
	}
	defer f.Close()
	about, err := export.Metadata(f)
	if err == nil {
		var step uint64
		if step, err = strconv.ParseUint(about[bestStep], 10, 64); err == nil {
			b.step = kintsugi.Step(step)
			b.loss, err = strconv.ParseFloat(about[bestLoss], 64)
		}
	}
	if err != nil {
		b.loss, b.was = math.NaN(), fmt.Errorf("%s: %w", path, err)
	}
	return b
}

// add writes the parameters of an evaluation to the file, if its loss is lower than that of the file.
func (b *best) add(l *kintsugi.Layout, about record.Evaluation, params []float32) error {
	loss := float64(about.Loss)
	if math.IsNaN(loss) || loss >= b.loss {
		return nil
	}
	metadata := map[string]string{
		"format": "kintsugi", "line": strconv.FormatUint(about.Line, 10),
		bestStep: strconv.FormatUint(about.Step, 10), bestLoss: strconv.FormatFloat(loss, 'g', -1, 64),
	}
	if about.Accuracy.Known() {
		metadata[bestAccuracy] = strconv.FormatFloat(float64(about.Accuracy), 'g', -1, 64)
	}
	tensors := job.TensorsOf(l, "", params)
	if err := record.WriteFile(b.path, func(w io.Writer) error { return export.Safetensors(w, tensors, metadata) }); err != nil {
		return fmt.Errorf("the best parameters so far, of step %d, are not kept: %w", about.Step, err)
	}
	b.loss, b.step = loss, kintsugi.Step(about.Step)
	return nil
}
