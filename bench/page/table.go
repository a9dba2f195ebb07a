package page

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table is a table of results, as text.
type Table struct {
	Title  string
	Header []string
	Lines  [][]string
}

// WriteTables writes tables as text.
func WriteTables(w io.Writer, tables []Table) error {
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, t.Title)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, line := range append([][]string{t.Header}, t.Lines...) {
			fmt.Fprintln(tw, strings.Join(line, "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}
