package quota

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/kintsugi-ml/kintsugi/bench/page"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// WriteText writes all tables, the claims last.
func (r *Result) WriteText(w io.Writer) error {
	tables := []page.Table{}
	for _, s := range r.Sets {
		tables = append(tables, s.tables()...)
	}
	return page.WriteTables(w, append(tables, r.claimsTable()))
}

func (s *Set) tables() []page.Table {
	return []page.Table{s.cellsTable(), s.waysTable(), s.estimatesTable(), s.slowdownTable()}
}

func (s *Set) cellsTable() page.Table {
	names := rivals(s.Cells)
	t := page.Table{
		Title:  s.Data + ": seconds to the target, and ratios to the best fixed quota at the same learning rate",
		Header: append([]string{"BATCH", "RATE", "ALPHA", "BEST FIXED", "ITS SECONDS", "ALL", "RATE ~ QUOTA", "dbw", "MEAN QUOTA", "RATIO"}, names...),
	}
	for _, c := range s.Cells {
		if c.Controller != "dbw" {
			continue
		}
		line := []string{
			strconv.Itoa(c.Batch), number(c.Rate), number(c.Alpha), strconv.Itoa(c.BestQuota), seconds(c.Best), seconds(c.All), seconds(c.Scaled),
			seconds(c.Seconds), fmt.Sprintf("%.1f", c.Quota), ratio(c.Ratio),
		}
		for _, name := range names {
			for _, o := range s.Cells {
				if o.Controller == name && o.cell() == c.cell() {
					line = append(line, ratio(o.Ratio))
				}
			}
		}
		t.Lines = append(t.Lines, line)
	}
	return t
}

// waysTable compares the policies of busy workers: seconds to the target.
func (s *Set) waysTable() page.Table {
	t := page.Table{Title: s.Data + ": seconds to the target, by what a busy worker does about newer parameters", Header: []string{"ALPHA", "QUOTA"}}
	var ways []string
	for i, r := range s.Ways {
		if i == 0 {
			t.Title += fmt.Sprintf("; batch %d, rate %g", r.Batch, r.Rate)
		}
		if len(ways) == 0 || ways[len(ways)-1] != r.Busy {
			ways = append(ways, r.Busy)
			t.Header = append(t.Header, map[string]string{"interrupt": "INTERRUPT (PsI)", "wait": "WAIT (PsW)", "pull": "PULL"}[r.Busy])
		}
	}
	if len(ways) == 0 {
		return t
	}
	per := len(s.Ways) / len(ways)
	for i, first := range s.Ways[:per] {
		add := func(name string, cell func(r Row) string) {
			line := []string{number(first.Alpha), name}
			for w := range ways {
				line = append(line, cell(s.Ways[w*per+i]))
			}
			t.Lines = append(t.Lines, line)
		}
		if i == 0 || s.Ways[i-1].Alpha != first.Alpha {
			add("all", func(r Row) string { return seconds(r.All) })
			add("best fixed", func(r Row) string { return fmt.Sprintf("%s (%d)", seconds(r.Best), r.BestQuota) })
		}
		add(first.Controller, func(r Row) string { return fmt.Sprintf("%s (%.1f)", seconds(r.Seconds), r.Quota) })
	}
	return t
}

func (s *Set) estimatesTable() page.Table {
	t := page.Table{Title: s.Data + ": estimates of dbw beside the truth", Header: []string{"ALPHA", "ESTIMATE", "LOOKS", "BIAS", "MEDIAN RELATIVE ERROR"}}
	for _, e := range s.Estimates {
		t.Lines = append(t.Lines, []string{number(e.Alpha), e.Estimate, strconv.Itoa(len(e.Looks)), fmt.Sprintf("%+.2f", float64(e.Bias)), ratio(e.Error)})
	}
	return t
}

func (s *Set) slowdownTable() page.Table {
	t := page.Table{
		Title:  fmt.Sprintf("%s: half of the workers become %g times slower after %g s", s.Data, slowFactor, slowFrom),
		Header: []string{"QUOTA", "SECONDS TO THE TARGET", "MEDIAN QUOTA BEFORE", "AFTER", "STEPS TO SETTLE"},
	}
	for _, x := range s.Slowdown {
		t.Lines = append(t.Lines, []string{x.Controller, seconds(x.Seconds), rounded(x.Before), rounded(x.After), rounded(x.Settled)})
	}
	return t
}

func (r *Result) claimsTable() page.Table {
	t := page.Table{Title: "What is claimed", Header: []string{"HOLDS", "CLAIM", "MEASURED"}}
	for _, c := range r.Claims {
		holds := "yes"
		if !c.Holds {
			holds = "NO"
		}
		t.Lines = append(t.Lines, []string{holds, c.Claim, c.Measured})
	}
	return t
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// known returns the number, or +Inf if it is unknown because the target was not reached.
func known(v record.Number) float64 {
	if !v.Known() {
		return math.Inf(1)
	}
	return float64(v)
}

func seconds(v record.Number) string {
	if !v.Known() {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(v))
}

func rounded(v record.Number) string {
	if !v.Known() {
		return "-"
	}
	return fmt.Sprintf("%.0f", float64(v))
}

func ratio(v record.Number) string {
	if !v.Known() {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(v))
}
