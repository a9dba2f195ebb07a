package failure

import "slices"

// Paper is one configuration in the paper's logs: one run each, with one worker.
type Paper struct {
	Preset string    `json:"preset"`
	Kills  int       `json:"kills"`
	Before []float64 `json:"accuracy_before"`
	After  []float64 `json:"accuracy_after"`
	Gap    []float64 `json:"gap_seconds"` // between two evaluations: up to three seconds longer than the outage
	Final  float64   `json:"final_accuracy"`

	// Of a run; zero: not reported. For CPU and memory the paper gives one range for all
	// configurations except stateless; this is its middle (0.166 to 0.195, 32 to 50 MB).
	Gradients int     `json:"gradients"`
	Busy      float64 `json:"busy_fraction"`     // of the CPU
	MB        float64 `json:"store_megabytes"`   // mean of the object store
	Pending   float64 `json:"pending_gradients"` // mean after an outage
}

// papers are the published runs, from the raw logs and metrics of the paper
// (github.com/SujeethJinesh/CS244B).
var papers = []Paper{
	{Preset: "sync checkpoint", Kills: 1, Before: []float64{.529}, After: []float64{.473}, Gap: []float64{23}, Final: .766, Gradients: 952},
	{Preset: "async checkpoint", Kills: 1, Before: []float64{.361}, After: []float64{.294}, Gap: []float64{23}, Final: .749, Gradients: 1070},
	{Preset: "sync chain", Kills: 1, Before: []float64{.442}, After: []float64{.352}, Gap: []float64{12}, Final: .756, Gradients: 1048},
	{Preset: "async chain", Kills: 1, Before: []float64{.362}, After: []float64{.376}, Gap: []float64{11}, Final: .721, Gradients: 1027},
	{Preset: "stateless", Kills: 1, Before: []float64{.281}, After: []float64{.426}, Gap: []float64{26}, Final: .665, Gradients: 5260, Pending: 234},
	{Preset: "sync checkpoint", Kills: 2, Before: []float64{.384, .512}, After: []float64{.108, .475}, Gap: []float64{24, 24}, Final: .735, Busy: .18, MB: 41},
	{Preset: "async checkpoint", Kills: 2, Before: []float64{.333, .419}, After: []float64{.101, .418}, Gap: []float64{24, 24}, Final: .744, Busy: .18, MB: 41},
	{Preset: "sync chain", Kills: 2, Before: []float64{.452, .573}, After: []float64{.438, .521}, Gap: []float64{13, 14}, Final: .746, Busy: .18, MB: 41},
	{Preset: "async chain", Kills: 2, Before: []float64{.527, .659}, After: []float64{.502, .596}, Gap: []float64{11, 10}, Final: .762, Busy: .18, MB: 41},
	{Preset: "stateless", Kills: 2, Before: []float64{.535, .629}, After: []float64{.589, .689}, Gap: []float64{25, 28}, Final: .746, Busy: .78, MB: 372, Pending: 234.5},
}

// paperOf returns the paper's result for a preset, or nil.
func paperOf(preset string, kills int) *Paper {
	i := slices.IndexFunc(Presets, func(p Preset) bool { return p.Name == preset })
	if i < 0 || Presets[i].Paper == "" {
		return nil
	}
	for k := range papers {
		if p := &papers[k]; p.Preset == Presets[i].Paper && p.Kills == kills {
			return p
		}
	}
	return nil
}
