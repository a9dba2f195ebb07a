// Package record records what a run did: its folder, its events, and what each failure cost. Begin
// reading at Recorder (writes), Run and ReadRun (read), and Account (computes the costs).
//
// A run directory contains
//
//	config.yaml          the settings, as they were given
//	events.jsonl         one flat JSON object per line: steps, failures, recoveries, views, checkpoints, …
//	events-*.jsonl.zst   earlier parts of events.jsonl, compressed; a short run has none
//	summary.json         the totals, written when the run ends
//	report.html          the page that the package report draws
//	logs/                what each process printed
//	control/             what the launcher tells the workers
//
// events.jsonl is the source: everything in summary.json can be computed from it, and is, if the
// launcher died before it could write summary.json. events.jsonl is only appended to, never
// rewritten, and a new one is begun when it is long. If a crash cut off the last line, readers
// ignore it and the next writer removes it.
//
// The accounting is pure (Account): events in, costs out. Recorder is the shell that also writes
// events and costs.
package record
