package report

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// FuzzPage draws whatever a run's folder contains, as far as it can be read as a run.
func FuzzPage(f *testing.F) {
	const events = `{"kind":"run","seconds":0,"format":1,"model":"mlp","servers":2,"workers":3,"replicas":1,"prices":"server=1"}
{"kind":"view","seconds":0.1,"number":1,"line":1,"fence":1,"heads":[0,1]}
{"kind":"step","seconds":1,"line":1,"step":1,"loss":3,"counted":[0,1],"workers":2,"quota":2,"reason":"all","staleness_each":[0,1],"times":[[0,1,2]]}
{"kind":"timeline","seconds":1,"line":1,"step":1,"wait_seconds":0.1,"apply_seconds":0.1,"workers":[[0,9,1,1,1,1,1,1,0]],"shards":[[0,1,1,1,0]]}
{"kind":"exposure","seconds":1,"line":1,"step":1,"servers":[{"part":"server/0","steps":1,"seconds":1,"distance":1,"mean_age_steps":1,"why":"x"}],"checkpoint_age_steps":1}
{"kind":"step","seconds":2,"line":1,"step":2,"loss":2,"counted":[0,1]}
{"kind":"evaluation","seconds":2,"line":1,"step":2,"loss":2,"accuracy":0.5}
{"kind":"checkpoint","seconds":2,"line":1,"step":2,"bytes":5}
{"kind":"failure","seconds":2.5,"part":"server/0","seen_seconds":2.6}
{"kind":"view","seconds":3,"number":2,"line":2,"fence":2,"restored_step":1,"heads":[1,1]}
{"kind":"step","seconds":3.5,"line":2,"step":2,"loss":3,"counted":[0,1]}
{"kind":"partial","seconds":3,"part":"server/0","chunks":3,"mean_age_steps":2}
{"kind":"rework","seconds":3,"part":"server/0","measured_steps":3,"standard_error":2}
{"kind":"note","seconds":3,"level":"warn","text":"<b>"}
`
	f.Add([]byte(events), []byte(nil), []byte("model: mlp\n"))
	f.Add([]byte(events+`{"kind":"step","line":9,"step":0,"counted":[7]}`+"\n"), []byte(nil), []byte(nil))
	f.Add([]byte(events), []byte(`{"format":1,"wall_seconds":1e-300,"failures":[{"part":"server/0","seconds":1,"recovery_seconds":2}]}`), []byte("\x00"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, events, summary, config []byte) {
		files := map[string][]byte{"events.jsonl": events, "summary.json": summary, "config.yaml": config}
		for name, content := range files {
			path := filepath.Join(dir, name)
			if len(content) == 0 {
				_ = os.Remove(path) // it may not exist
			} else if err := os.WriteFile(path, content, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		run, err := record.ReadRun(dir)
		if err != nil {
			return
		}
		if err := Write(io.Discard, run); err != nil {
			t.Fatal(err)
		}
	})
}
