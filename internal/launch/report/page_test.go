package report

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

var keep = flag.String("keep", "", "write the demo page to this file, to look at it")

func draw(t *testing.T, run *record.Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, run); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTheDemoRunIsDrawn(t *testing.T) {
	run := record.NewRun(demo(600, 1))
	page := draw(t, run)
	if *keep != "" {
		if err := os.WriteFile(*keep, []byte(page), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
