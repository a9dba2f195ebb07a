// Package page writes the results of experiments: tables as text and JSON, and pages with figures.
package page

import (
	_ "embed" // for parts.html
	"encoding/json"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Experiment describes an experiment: its command, place and time.
type Experiment struct {
	Command string    `json:"command"`
	Commit  string    `json:"commit"`
	Machine string    `json:"machine"`
	Time    time.Time `json:"time"`
}

//go:embed parts.html
var parts string // what the pages of all experiments begin with

// Write writes table.json, and report.html from a template, to a folder. It returns the
// path of the page.
func Write(dir, text string, table, view any) (file string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write the experiment: %w", err)
	}
	rows, err := json.MarshalIndent(table, "", "  ")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "table.json"), append(rows, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("write the experiment: %w", err)
	}
	t, err := template.Must(template.New("parts").Parse(parts)).New("page").Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, view); err != nil {
		return "", err
	}
	file = filepath.Join(dir, record.ReportFile)
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		return "", fmt.Errorf("write the experiment: %w", err)
	}
	return file, nil
}
