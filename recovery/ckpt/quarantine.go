package ckpt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// quarantine moves a file to the quarantine, if it exists.
func (r *repairer) quarantine(file string) error {
	if err := r.fs.MkdirAll(path.Join(r.dir, quarantineDir)); err != nil {
		return err
	}
	for i := 0; ; i++ { // Rename replaces files, and nothing may be lost
		to := path.Join(r.dir, quarantineDir, quarantined(file, i))
		_, err := r.fs.Stat(to)
		if err == nil {
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		err = r.fs.Rename(path.Join(r.dir, file), to)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was reported as missing
		}
		if err != nil {
			return err
		}
		r.report.Quarantined = append(r.report.Quarantined, file)
		return errors.Join(r.fs.SyncDir(path.Join(r.dir, quarantineDir)), r.fs.SyncDir(path.Join(r.dir, path.Dir(file))))
	}
}

// quarantined returns the name in the quarantine of a file DIR/NAME that may be there several times.
func quarantined(file string, i int) string {
	return fmt.Sprintf("%s.%d", strings.ReplaceAll(file, "/", "-"), i)
}

// lostBefore returns the names of the run manifests that lie in the quarantine. A repair that ended
// after it had put them there, and before it published others in their place, left only that trace
// of them.
func (r *repairer) lostBefore() ([]fileName, error) {
	return listNames(r.fs, r.dir, quarantineDir, func(name string) (fileName, bool) {
		name, number, _ := strings.Cut(name, ".")
		file, ok := strings.CutPrefix(name, runDir+"-")
		if !ok || strings.Trim(number, "0123456789") != "" {
			return fileName{}, false
		}
		return parseIn(runDir, path.Join(runDir, file))
	})
}

// putAway moves damaged files to the quarantine: manifests before the files that they name.
func (r *repairer) putAway(context.Context) error {
	lost, err := r.lostBefore()
	if err != nil {
		return err
	}
	r.lost = lost
	for i, m := range r.v.runs {
		file := r.v.report.Checkpoints[i].Name
		whole := m != nil && len(r.v.wrong[file]) == 0
		if whole {
			_, shards, err := readRun(r.fs, r.dir, file)
			if err != nil && !errors.Is(err, kintsugi.ErrCorrupt) {
				return err
			}
			whole = err == nil && !slices.ContainsFunc(shards, func(s *ShardManifest) bool {
				return slices.ContainsFunc(s.Segments, func(s Segment) bool { return r.bad[s.File] })
			})
		}
		if whole {
			continue
		}
		if name, ok := parseIn(runDir, file); ok {
			r.lost = append(r.lost, name)
		}
		if err := r.quarantine(file); err != nil {
			return err
		}
	}
	for file := range r.v.wrong {
		if _, ok := parseIn(lineDir, file); ok { // the next writer on its line claims the line again
			r.hopeless = append(r.hopeless, file)
		}
	}
	slices.Sort(r.hopeless)
	for _, file := range slices.Compact(r.hopeless) {
		if err := r.quarantine(file); err != nil {
			return err
		}
	}
	for _, file := range slices.Sorted(maps.Keys(r.bad)) {
		if r.bad[file] {
			if err := r.quarantine(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// save is a step of a line, of which shards were saved.
type save struct {
	line kintsugi.Line
	step kintsugi.Step
}

func (n fileName) save() save { return save{n.Line, n.Step} }

// publishRuns publishes run manifests of steps whose chunks are all there: of those that have lost
// theirs, and of those that are newer than every whole checkpoint.
func (r *repairer) publishRuns(context.Context) error {
	newest := fileName{}
	if m, _, err := Newest(r.fs, r.dir); err == nil {
		newest = m.name()
	} else if !errors.Is(err, ErrNoCheckpoint) {
		return err
	}
	names, err := listNames(r.fs, r.dir, runDir, parseRunName)
	if err != nil {
		return err
	}
	whole := map[save]bool{} // what was not has been put away
	for _, n := range names {
		whole[n.save()] = true
	}
	lost := map[save]kintsugi.Fence{} // the greatest
	for _, n := range r.lost {
		lost[n.save()] = max(lost[n.save()], n.Fence)
	}
	saves, err := r.fullSaves()
	if err != nil {
		return err
	}
	for at, shards := range saves {
		fence, wasLost := lost[at]
		name := fileName{Line: at.line, Step: at.step, Fence: fence}
		for _, s := range shards {
			name.Fence = max(name.Fence, s.Fence)
		}
		if whole[at] || !wasLost && !newest.before(name) {
			continue
		}
		if err := r.publishRun(name, slices.Collect(maps.Values(shards))); err != nil {
			return err
		}
	}
	slices.Sort(r.report.Published)
	slices.Sort(r.report.Nameless)
	return nil
}

// fullSaves returns the manifests of shards that were saved with all their chunks: of each shard that
// of the last attempt of the greatest fence.
func (r *repairer) fullSaves() (map[save]map[kintsugi.ShardID]*ShardManifest, error) {
	names, err := listNames(r.fs, r.dir, shardDir, parseShardName)
	if err != nil {
		return nil, err
	}
	files := make([]string, 0, len(names))
	for _, n := range names {
		files = append(files, path.Join(shardDir, n.shard()))
	}
	saves := map[save]map[kintsugi.ShardID]*ShardManifest{}
	for i, s := range readShards(r.fs, r.dir, files) { // ascending
		if s.err != nil {
			return nil, s.err
		}
		if !s.m.Complete() {
			continue
		}
		at := names[i].save()
		if saves[at] == nil {
			saves[at] = map[kintsugi.ShardID]*ShardManifest{}
		}
		saves[at][names[i].Shard] = s.m
	}
	return saves, nil
}

// publishRun publishes a checkpoint of these shards, if they are a whole model that is known.
func (r *repairer) publishRun(name fileName, shards []*ShardManifest) error {
	var files []string
	slices.SortFunc(shards, func(a, b *ShardManifest) int { return cmp.Compare(a.Shard, b.Shard) })
	next := kintsugi.ChunkID(0)
	for i, s := range shards {
		if int(s.Shard) != i || s.Lo != next || s.Rule != shards[0].Rule || s.Fingerprint != shards[0].Fingerprint {
			return nil
		}
		next = s.Hi
		files = append(files, s.File())
	}
	model := r.cfg.Model
	for _, m := range r.v.runs {
		if m != nil && m.Fingerprint == shards[0].Fingerprint {
			model = m
		}
	}
	if model == nil || fingerprint(model.Tensors) != shards[0].Fingerprint {
		r.report.Nameless = append(r.report.Nameless, name.Step)
		return nil
	}
	layout, err := kintsugi.NewLayout(model.Tensors)
	if err != nil {
		return err
	}
	if int(next) != len(layout.Chunks) {
		return nil
	}
	m := &RunManifest{
		Line: name.Line, Step: name.Step, Fence: name.Fence, Created: r.cfg.Now, Model: model.Model, Seed: model.Seed, Rule: shards[0].Rule,
		Tensors: model.Tensors, Notes: map[string]string{"repaired": "its manifest was written again from what was whole"},
	}
	if err := PublishRun(r.fs, r.dir, m, files); errors.Is(err, ErrPublished) {
		return nil // another checkpoint of that step is whole
	} else if err != nil {
		return err
	}
	r.report.Published = append(r.report.Published, m.Name())
	return nil
}
