// Package checkpoint is the checkpoint command: it lists, shows, verifies, repairs, evaluates and exports the
// checkpoints of a run, and makes new runs of them. It works on any place where checkpoints can be, whether the run is
// under way or has died. Only repair changes what is there.
package checkpoint
