package measure

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kintsugi-ml/kintsugi"
)

// benchName converts a name to one that benchstat accepts.
func benchName(name string) string {
	name = benchValue(name)
	return "Benchmark" + strings.ToUpper(name[:1]) + name[1:]
}

// benchValue converts text to one word, as in the names of Go benchmarks.
func benchValue(text string) string { return strings.NewReplacer(":", "_", " ", "_").Replace(text) }

// checkFormat refuses a format that printRows does not know. It is called before minutes of
// measuring.
func checkFormat(format string) error {
	if !slices.Contains([]string{"text", "json", "benchfmt"}, format) {
		return fmt.Errorf("%w: --format %q is unknown; use text, json or benchfmt", kintsugi.ErrUsage, format)
	}
	return nil
}

// printRows prints results as a table, as JSON or in the format of Go benchmarks. Cells that a row of
// the table does not have are dashes, as are figures that are not known; Go benchmarks leave these
// out.
func printRows[R any](w io.Writer, format string, rows []R, header string, line func(R) (text, benchfmt string)) error {
	switch format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(rows)
	case "benchfmt":
		for _, r := range rows {
			_, b := line(r)
			fmt.Fprintln(w, knownFigures(b))
		}
		return nil
	default:
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, header)
		for _, r := range rows {
			text, _ := line(r)
			if header != "" {
				text = filled(text, strings.Count(header, "\t")+1)
			}
			fmt.Fprintln(t, text)
		}
		return t.Flush()
	}
}

// filled puts dashes into the empty cells of a line of a table, and into those that are left out at
// its end.
func filled(line string, columns int) string {
	cells := strings.Split(line, "\t")
	cells = append(cells, make([]string, max(0, columns-len(cells)))...)
	for i, c := range cells {
		cells[i] = cmp.Or(c, "–")
	}
	return strings.Join(cells, "\t")
}

// knownFigures leaves out the figures of a line in the format of Go benchmarks that are not known.
func knownFigures(line string) string {
	words := strings.Split(line, " ") // a name, a count, and a number and a unit for each figure
	kept := words[:min(2, len(words))]
	for i := len(kept); i+1 < len(words); i += 2 {
		if words[i] != "–" {
			kept = append(kept, words[i], words[i+1])
		}
	}
	return strings.Join(kept, " ")
}
