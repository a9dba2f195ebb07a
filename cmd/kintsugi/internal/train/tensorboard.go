package train

import (
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch/tensorboard"
)

// figuresUsage describes --tensorboard.
const figuresUsage = "also write the run's figures to its folder for TensorBoard, which shows them by tensorboard --logdir FOLDER"

// drawFigures writes the figures of the run for TensorBoard from now on, if that is wanted.
func (w *watcher) drawFigures(wanted bool, dir string) (err error) {
	if !wanted {
		return nil
	}
	if w.figures, err = tensorboard.Open(dir, time.Now()); err != nil {
		return err
	}
	w.rec.Tell(w.figures.Add)
	return nil
}

// drawn ends the figures. The record has been finished, so nobody adds to them.
func (w *watcher) drawn() error {
	if w.figures == nil {
		return nil
	}
	return w.figures.Close()
}
