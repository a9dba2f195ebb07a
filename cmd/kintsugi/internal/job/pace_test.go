package job

import (
	"errors"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// A pace is a number of steps, a time, or auto, and is written as it is read.
func TestAPaceIsStepsATimeOrAuto(t *testing.T) {
	for text, want := range map[string]Pace{"50": {Steps: 50}, "0": {}, "10m": {Time: 10 * time.Minute}, "auto": {Auto: true}, "1h30m": {Time: 90 * time.Minute}, "500ms": {Time: time.Second / 2}} {
		var p, again Pace
		if err := p.Set(text); err != nil || p != want {
			t.Errorf("%s is read as %+v, %v", text, p, err)
		}
		if err := again.Set(p.String()); err != nil || again != p {
			t.Errorf("%s is written as %s, and read again as %+v, %v", text, p.String(), again, err)
		}
	}
	for _, text := range []string{"", "-5", "0s", "-10m", "AUTO", "10 m", "ten", "1e3", "18446744073709551616"} {
		p := Pace{Steps: 7}
		if err := p.Set(text); !errors.Is(err, kintsugi.ErrUsage) || p != (Pace{Steps: 7}) {
			t.Errorf("%q is read as %+v, %v", text, p, err)
		}
	}
}
