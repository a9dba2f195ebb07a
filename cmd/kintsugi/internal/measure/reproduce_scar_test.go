package measure

import (
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/bench/partial"
)

// Columns are aligned over the whole table only if each row has all cells.
func TestARowWithoutFiguresHasAllColumns(t *testing.T) {
	for _, r := range []partial.Row{{Name: "scar", Strategy: "half:1/8", Missing: "its values need few bits"}, {Name: "scar", Strategy: "full", Paper: "78–95 %"}} {
		if text, _ := scarLine(r); strings.Count(text, "\t") != strings.Count(scarTable, "\t") {
			t.Errorf("%q has other columns than %q", text, scarTable)
		}
	}
}
