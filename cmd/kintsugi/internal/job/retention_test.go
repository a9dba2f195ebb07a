package job

import (
	"errors"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

func TestARetentionIsReadAsItIsWritten(t *testing.T) {
	for text, want := range map[string]ckpt.Retention{"1": {Newest: 1}, "1000": {Newest: 1000}, "2,every=1000": {Newest: 2, Every: 1000}} {
		var r, again retention
		if err := r.Set(text); err != nil || r.Retention != want || r.String() != text {
			t.Errorf("%s is read as %+v, %v, and written as %s", text, r, err, r.String())
		}
		if err := again.Set(r.String()); err != nil || again != r {
			t.Errorf("%s is read again as %+v, %v", r.String(), again, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "1001", "two", "2,", "2,every=", "2,every=0", "2,every=-1", "2,every=1e3", "2,1000", "2, every=5"} {
		r := retention{ckpt.Retention{Newest: 7}}
		if err := r.Set(text); !errors.Is(err, kintsugi.ErrUsage) || r.Newest != 7 {
			t.Errorf("%q is read as %+v, %v", text, r, err)
		}
	}
}
