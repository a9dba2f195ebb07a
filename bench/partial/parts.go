package partial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi/bench/page"
)

// tablePart is the result of one workload. It has a file of its own, so that workloads can run
// separately, and an interrupted experiment can be continued.
type tablePart struct {
	page.Experiment
	Settings string `json:"settings"` // results with other settings, or of another commit, are not used
	Rows     []Row  `json:"rows"`
}

const partPrefix = "part-"

// Parts measures the problems one after the other, and writes the result of each to a file in dir.
// It skips a problem if there is a file from the same commit and settings.
func (cfg Config) Parts(ctx context.Context, dir string, about page.Experiment) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the experiment: %w", err)
	}
	for _, p := range cfg.Problems {
		file := filepath.Join(dir, partPrefix+p.Name+"-"+p.Data+".json")
		part := tablePart{Experiment: about, Settings: fmt.Sprint(p.Steps, cfg.Lost, cfg.Periods, cfg.Strategies, cfg.Contiguous, cfg.Trials, cfg.Seeds)}
		if old, err := readPart(file); err == nil && old.Settings == part.Settings && old.Commit == about.Commit && about.Commit != "unknown" {
			fmt.Fprintf(cfg.Progress, "%s on %s: %s has it\n", p.Name, p.Data, file)
			continue
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		one := cfg
		one.Problems = []Problem{p}
		var err error
		if part.Rows, err = Run(ctx, one); err != nil {
			return err
		}
		text, err := json.MarshalIndent(part, "", "  ")
		if err == nil {
			err = os.WriteFile(file+".new", append(text, '\n'), 0o644)
		}
		if err == nil {
			err = os.Rename(file+".new", file)
		}
		if err != nil {
			return fmt.Errorf("write the experiment: %w", err)
		}
	}
	return nil
}

func readPart(file string) (part tablePart, err error) {
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &part)
	}
	if err != nil {
		return part, fmt.Errorf("read a part of the experiment: %w", err)
	}
	return part, nil
}

// Read returns the rows of all parts in a folder, workload by workload.
func Read(dir string) (rows []Row, err error) {
	files, err := filepath.Glob(filepath.Join(dir, partPrefix+"*.json"))
	if err != nil {
		return nil, err
	}
	place := func(file string) int {
		name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(file), partPrefix), "-")
		if i := slices.Index(Workloads, name); i >= 0 {
			return i
		}
		return len(Workloads)
	}
	slices.SortStableFunc(files, func(a, b string) int { return place(a) - place(b) })
	for _, file := range files {
		part, err := readPart(file)
		if err != nil {
			return nil, err
		}
		rows = append(rows, part.Rows...)
	}
	return rows, nil
}
