package goodput

import (
	_ "embed" // for page.html
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kintsugi-ml/kintsugi/bench/page"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

//go:embed page.html
var pageText string

// PictureFile is the file name of the picture in the folder of the experiment.
const PictureFile = "goodput.svg"

// Write writes table.json, report.html and the picture to a folder and returns the path of the page.
func Write(dir string, about page.Experiment, cfg *Config, rows []Row) (file string, err error) {
	table := struct {
		page.Experiment
		Rows []Row `json:"rows"`
	}{about, rows}
	view := pageView{About: about, Settings: footer(cfg, rows) + ".", Picture: PictureFile, Tables: []page.Table{Table(rows)}}
	if file, err = page.Write(dir, pageText, table, view); err != nil {
		return "", err
	}
	return file, WritePicture(filepath.Join(dir, PictureFile), cfg, rows)
}

// WritePicture writes the picture to a file.
func WritePicture(file string, cfg *Config, rows []Row) error {
	if err := os.WriteFile(file, []byte(PictureOf(cfg, rows)), 0o644); err != nil {
		return fmt.Errorf("write the picture of goodput: %w", err)
	}
	return nil
}

// pageView is the data of page.html.
type pageView struct {
	About             page.Experiment
	Settings, Picture string
	Tables            []page.Table
}

// header is the header of the table.
const header = "RECOVERY\tLOSS\tMTBF\tKILLS\tGOODPUT (min, max)\tSTEPS LOST\tFELL BEHIND\tMEASURED\tNEXT STEP AFTER p50\tMAX\tSTEADY TAX\tSAVED\tTRAIN LOSS\tTEST LOSS\tACCURACY"

// Table returns the rows as a table.
func Table(rows []Row) page.Table {
	t := page.Table{Title: "Goodput", Header: strings.Split(header, "\t")}
	for i := range rows {
		t.Lines = append(t.Lines, rows[i].Line())
	}
	return t
}

// Line returns the columns of a row.
func (r *Row) Line() []string {
	known := func(format string, x record.Number) string {
		if !x.Known() {
			return "–"
		}
		return fmt.Sprintf(format, float64(x))
	}
	loss, mtbf, kills, next, most := r.Loss, fmt.Sprintf("%g s", r.MTBF), fmt.Sprint(r.Kills), known("%.3f s", r.Next), known("%.3f s", r.NextMax)
	switch {
	case r.MTBF == 0:
		loss, mtbf, kills = "–", "never", "–"
	case loss == "either":
		loss = "kill, lose"
	}
	if r.Unplanned > 0 {
		kills += fmt.Sprintf(" + %d of themselves", r.Unplanned)
	}
	lost, behind, measured := "–", "–", "–"
	if r.MTBF > 0 {
		lost = fmt.Sprintf("%.0f", r.Lost)
	}
	if r.Shards > 0 {
		behind = fmt.Sprintf("%.1f (%d of %d predicted)", r.Behind, r.Predicted, r.Shards)
	}
	if r.Told > 0 {
		measured = fmt.Sprintf("%.1f ± %.1f (%d of %d)", r.Measured, r.Error, r.Told, r.Shards)
	}
	goodput := known("%.3f", r.Goodput)
	if r.Rounds > 1 {
		goodput += fmt.Sprintf(" (%s, %s)", known("%.3f", r.Min), known("%.3f", r.Max))
	}
	if r.Rounds == 0 {
		goodput = "n/a: no run came to its end"
	}
	return []string{r.Recovery, loss, mtbf, kills, goodput, lost, behind, measured, next, most,
		known("%.1f %%", 100*r.Tax), known("%.2f MB/s", r.Saved), known("%.4f", r.TrainLoss), known("%.4f", r.TestLoss), known("%.4f", r.Accuracy)}
}
