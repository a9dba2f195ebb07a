package bench

import (
	_ "embed" // for goodput.html
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

//go:embed goodput.html
var goodputPageText string

// GoodputPicture is the file name of the picture in the folder of the experiment.
const GoodputPicture = "goodput.svg"

// WriteGoodput writes table.json, report.html and the picture to a folder and returns the path of the page.
func WriteGoodput(dir string, about Experiment, cfg *GoodputConfig, rows []GoodputRow) (page string, err error) {
	table := struct {
		Experiment
		Rows []GoodputRow `json:"rows"`
	}{about, rows}
	view := goodputView{About: about, Settings: goodputFooter(cfg, rows) + ".", Picture: GoodputPicture, Tables: []Table{GoodputTable(rows)}}
	if page, err = writeExperiment(dir, goodputPageText, table, view); err != nil {
		return "", err
	}
	return page, WritePicture(filepath.Join(dir, GoodputPicture), cfg, rows)
}

// WritePicture writes the picture to a file.
func WritePicture(file string, cfg *GoodputConfig, rows []GoodputRow) error {
	if err := os.WriteFile(file, []byte(PictureOf(cfg, rows)), 0o644); err != nil {
		return fmt.Errorf("write the picture of goodput: %w", err)
	}
	return nil
}

// goodputView is the data of goodput.html.
type goodputView struct {
	About             Experiment
	Settings, Picture string
	Tables            []Table
}

// goodputHeader is the header of the table.
const goodputHeader = "RECOVERY\tLOSS\tMTBF\tKILLS\tGOODPUT (min, max)\tSTEPS LOST\tFELL BEHIND\tMEASURED\tNEXT STEP AFTER p50\tMAX\tSTEADY TAX\tSAVED\tTRAIN LOSS\tTEST LOSS\tACCURACY"

// GoodputTable returns the rows as a table.
func GoodputTable(rows []GoodputRow) Table {
	t := Table{Title: "Goodput", Header: strings.Split(goodputHeader, "\t")}
	for i := range rows {
		t.Lines = append(t.Lines, rows[i].Line())
	}
	return t
}

// Line returns the columns of a row.
func (r *GoodputRow) Line() []string {
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
