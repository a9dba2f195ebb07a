// Package record keeps what a run did: its folder, its events, and what each failure cost.
//
// A run directory holds
//
//	config.yaml          the settings, as they were given
//	events.jsonl         one flat JSON object per line: steps, failures, recoveries, views, checkpoints, …
//	events-*.jsonl.zst   what was cut off of events.jsonl before, packed; a short run has none
//	summary.json         the totals, written when the run ends
//	report.html          the page that the package report draws
//	logs/                what each process printed
//	control/             what the launcher tells the workers
//
// events.jsonl is the source: everything in summary.json can be computed from it again, and is,
// when the launcher died before it could write one. It is appended to, never rewritten, and cut
// when it is long; a last line that a crash cut off is ignored by readers and cut off by the next
// writer.
//
// The accounting is pure (Account): events in, costs out. Recorder is the shell that also writes them.
package record
