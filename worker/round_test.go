package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Each second of an iteration is measured once, in the part that ends with it. What follows the last
// part is in none.
func TestTheTimeOfAnIterationIsMeasuredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r round
		r.end() // the first one begins
		for range 2 {
			time.Sleep(2 * time.Second)
			r.lap(&r.spans.Wait)
			time.Sleep(3 * time.Second)
			r.lap(&r.spans.Pull)
			time.Sleep(5 * time.Second)
			r.lap(&r.spans.Wait) // again: more of the same part
			time.Sleep(7 * time.Second)
			if got, want := r.end(), (kintsugi.Spans{Wait: 7 * time.Second, Pull: 3 * time.Second}); got != want {
				t.Errorf("%+v; want %+v", got, want)
			}
		}
	})
}
