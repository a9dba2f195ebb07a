package ckpt

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// lineDir holds a claim for each line that a run has written on, which names the run.
const lineDir = "line"

const claimFormat = "kintsugi line claim"

// maxClaim bounds a claim, in bytes. Names are short.
const maxClaim = 64 << 10

// Claim says which run a line belongs to. It is created only if the line has none, and never
// changed. So every file of a line belongs to one run. The place belongs to the run of the newest
// claim, which is a fence between runs that share only the place.
type Claim struct {
	Format  string        `json:"format"`
	Version int           `json:"version"`
	Line    kintsugi.Line `json:"line"`
	Run     string        `json:"run"`   // its id, which no other run has
	Name    string        `json:"name"`  // its name, for people
	Since   time.Time     `json:"since"` // when the run took the place
	After   string        `json:"after"` // the newest run manifest then, from which the run goes on; empty: there was none
}

// ErrTaken means that the place belongs to another run by now. Nothing was written.
var ErrTaken = errors.New("the place was taken by another run")

// ErrUnclaimed means that the place belongs to no run. A run claims its place before it begins, so
// this is another place, or it was emptied.
var ErrUnclaimed = errors.New("no run has claimed the place")

func claimName(line kintsugi.Line) string { return fmt.Sprintf("%020d", line) }

// parseClaimName reverses claimName.
func parseClaimName(s string) (fileName, bool) {
	n, ok := parseName(s, 1)
	return n, ok && claimName(n.Line) == s
}

// File returns the name of the claim, relative to the checkpoint's directory.
func (c *Claim) File() string { return path.Join(lineDir, claimName(c.Line)) }

func (c *Claim) encode() ([]byte, error) {
	var j jsonLines
	j.field("format", c.Format)
	j.field("version", c.Version)
	j.field("line", c.Line)
	j.field("run", c.Run)
	j.field("name", c.Name)
	j.field("since", c.Since)
	j.field("after", c.After)
	return j.seal()
}

func (c *Claim) check() error {
	if c.Run == "" {
		return errors.New("it is of no run")
	}
	if _, ok := parseIn(runDir, c.After); c.After != "" && !ok {
		return fmt.Errorf("%q is no name of a run manifest", c.After)
	}
	return nil
}

func decodeClaim(file string, b []byte) (*Claim, error) {
	c := new(Claim)
	if err := decodeManifest(file, claimFormat, plainVersion, b, c); err != nil {
		return nil, err
	}
	return c, checkManifest(file, b, c, c.File)
}

func readClaim(fsys vfs.FS, dir string, line kintsugi.Line) (*Claim, error) {
	file := path.Join(lineDir, claimName(line))
	b, err := readAll(fsys, dir, file, maxClaim)
	if err != nil {
		return nil, err
	}
	return decodeClaim(file, b)
}

// create makes the claim exist. It returns ErrPublished if the line has another claim.
func (c *Claim) create(fsys vfs.FS, dir string) error {
	c.Format, c.Version = claimFormat, plainVersion
	c.Since = c.Since.UTC().Round(0)
	content, err := c.encode()
	if err == nil {
		_, err = decodeClaim(c.File(), content) // a claim that cannot be read back must not be published
	}
	if err != nil {
		return fmt.Errorf("%w: %w", kintsugi.ErrUsage, err)
	}
	for _, folder := range []string{lineDir, tmpDir} {
		if err := fsys.MkdirAll(path.Join(dir, folder)); err != nil {
			return err
		}
	}
	return publish(fsys, dir, lineDir, claimName(c.Line), content)
}

// Holder returns the newest claim, which is that of the run to which the place belongs; nil: no run
// has claimed it.
func Holder(fsys vfs.FS, dir string) (*Claim, error) {
	o, err := ownersOf(fsys, dir, "")
	if err != nil || len(o.claims) == 0 {
		return nil, err
	}
	return o.claim(o.claims[len(o.claims)-1])
}

// takes is how often Take begins again at once because other runs write in the place.
const takes = 100

// Take gives the place to a run that has none yet, whichever run had it before. c has Run, Name and
// Since. The returned claim has a line that no file belongs to. The run before can then write no
// more to a line that the new run reads, and Holds tells it so. A crash leaves a claim that the
// next Take skips.
//
// The run goes on from what is in the place (Claim.After). It does not see what others publish
// there later: what they had in flight is not a step of this run.
func Take(fsys vfs.FS, dir string, c Claim) (*Claim, error) {
	describe := func(err error) error { return fmt.Errorf("take %s for run %s: %w", dir, c.Run, err) }
	for range takes {
		names, err := List(fsys, dir)
		if err != nil {
			return nil, describe(err)
		}
		if c.After = ""; len(names) > 0 {
			c.After = names[0]
		}
		held, err := Holder(fsys, dir)
		if err != nil && !errors.Is(err, kintsugi.ErrCorrupt) { // it does not matter any more which run a damaged claim belongs to
			return nil, describe(err)
		}
		// Only a second look shows that, between the first look and the claim, the run before has
		// not published something and compacted away what this run would go on from. After the
		// claim, at most what it had in flight appears.
		if held != nil && held.Run == c.Run && held.After == c.After {
			// An earlier try may have ended between link and sync.
			return held, fsys.SyncDir(path.Join(dir, lineDir))
		}
		last, err := LastLine(fsys, dir)
		if err != nil {
			return nil, describe(err)
		}
		c.Line = last + 1
		if err := c.create(fsys, dir); err != nil && !errors.Is(err, ErrPublished) {
			return nil, describe(err)
		}
	}
	return nil, describe(fmt.Errorf("others took it %d times meanwhile: %w", takes, ErrTaken))
}

// Holds returns ErrTaken if the place belongs to another run, and ErrUnclaimed if it belongs to
// none.
func Holds(fsys vfs.FS, dir, run string) error {
	held, err := Holder(fsys, dir)
	switch {
	case err == nil && held == nil:
		err = ErrUnclaimed
	case err == nil:
		err = held.by(run)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// by returns ErrTaken if c belongs to another run.
func (c *Claim) by(run string) error {
	if c.Run == run {
		return nil
	}
	return fmt.Errorf("%w: %q has it since %s (line %d, id %s), and this one saves nothing there any more: end one of the two, and give it a store of its own; a run that begins anew there takes it back",
		ErrTaken, c.Name, c.Since.Format(time.RFC3339), c.Line, c.Run)
}

// claim makes sure that the line belongs to the run before anything is written on it, provided that
// the place does. A line may begin while the place cannot be reached, so the first Writer that
// writes on the line claims it. A claim that has been read once is not read again, because claims
// do not change.
func (w *Writer) claim() error {
	if w.cfg.Run == "" {
		return nil
	}
	o, err := ownersOf(w.fs, w.dir, "")
	if err == nil && len(o.claims) == 0 {
		err = fmt.Errorf("%s: %w", w.dir, ErrUnclaimed)
	}
	if err != nil {
		return err
	}
	newest := o.claims[len(o.claims)-1]
	if newest == w.held {
		return nil
	}
	held, err := o.claim(newest)
	if err != nil {
		return err
	}
	if err := held.by(w.cfg.Run); err != nil {
		return err
	}
	if err := w.own(held); err != nil {
		return err
	}
	w.held = max(newest, w.cfg.Line)
	return nil
}

// own claims the line for a run that has the place by the claim held.
func (w *Writer) own(held *Claim) error {
	fsys, dir, run, line := w.fs, w.dir, w.cfg.Run, w.cfg.Line
	if held.Line == line {
		// Another shard may have made it, and it may not be durable yet.
		return fsys.SyncDir(path.Join(dir, lineDir))
	}
	own := *held
	own.Line = line
	err := own.create(fsys, dir)
	if !errors.Is(err, ErrPublished) {
		return err
	}
	was, err := readClaim(fsys, dir, line)
	if err != nil {
		return err
	}
	return was.by(run)
}

// owners says which parts of a place a run may read.
type owners struct {
	fs     vfs.FS
	dir    string
	run    string // empty: all of it
	claims []kintsugi.Line
	known  map[kintsugi.Line]*Claim
	after  fileName // what the run began with, and everything before it
}

func ownersOf(fsys vfs.FS, dir, run string) (*owners, error) {
	names, err := listNames(fsys, dir, lineDir, parseClaimName)
	if err != nil {
		return nil, fmt.Errorf("list claims in %s: %w", dir, err)
	}
	o := &owners{fs: fsys, dir: dir, run: run, known: map[kintsugi.Line]*Claim{}}
	for _, n := range names {
		o.claims = append(o.claims, n.Line)
	}
	for i := len(o.claims) - 1; i >= 0 && run != ""; i-- {
		c, err := o.claim(o.claims[i])
		if err != nil {
			return nil, err
		}
		if c.Run == run {
			o.after, _ = parseIn(runDir, c.After)
			break
		}
	}
	return o, nil
}

// claim returns the claim of a line that has one.
func (o *owners) claim(line kintsugi.Line) (*Claim, error) {
	if c := o.known[line]; c != nil {
		return c, nil
	}
	c, err := readClaim(o.fs, o.dir, line)
	if err == nil {
		o.known[line] = c
	}
	return c, err
}

// has reports whether a line belongs to the run, or to no run.
func (o *owners) has(line kintsugi.Line) (bool, error) {
	if _, claimed := slices.BinarySearch(o.claims, line); o.run == "" || !claimed {
		return true, nil
	}
	c, err := o.claim(line)
	return err == nil && c.Run == o.run, err
}

// reads reports whether the run may read what is on a line: its own lines, and those that it began
// with.
func (o *owners) reads(line kintsugi.Line) (bool, error) {
	if line <= o.after.Line {
		return true, nil
	}
	return o.has(line)
}

// sees reports whether the run may use a run manifest of that name.
func (o *owners) sees(name fileName) (bool, error) {
	if name.compare(o.after) <= 0 {
		return true, nil
	}
	return o.has(name.Line)
}
