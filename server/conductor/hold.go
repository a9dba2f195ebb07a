package conductor

import (
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// A server that holds the only copy of a shard and is about to go hands it over through the
// checkpoint: no step is decided any more, the newest version is saved, and then it may go. Whoever
// is in the view that follows starts from that version, and no step is lost. A save that fails ends
// the hold: steps that may be lost are better than none.

// hold is a run that stands still because a server is about to go.
type hold struct {
	on   bool
	from kintsugi.Step // 1 + the step whose save was begun for it; 0: none
	said bool
}

// Hold lets the run stand at the next release: the version is saved, and Ready.Held says so. It
// lasts until the view ends.
func (c *Conductor) Hold(now time.Time) {
	if c.hold.on {
		return
	}
	c.hold.on = true
	c.proceed(now)
}

// stand has the newest version saved, if it is not, and says that the run stands. No step is open.
func (c *Conductor) stand(now time.Time) {
	switch {
	case c.hold.said || c.save.step != nil: // its end calls proceed
	case c.save.durable == c.released+1:
		c.hold.said = true
		step := c.released
		c.ready.Held = &step
	case c.save.newest == c.released+1 && c.hold.from == c.released+1: // it went wrong
		c.hold = hold{}
	default:
		c.hold.from = c.released + 1
		c.saveNewest(now)
	}
}

// saveNewest has the newest version saved. No save is under way.
func (c *Conductor) saveNewest(now time.Time) {
	c.save.begin(now, c.released, c.cfg.Shards)
	rel := c.last
	rel.Line, rel.Fence, rel.Step, rel.Save = c.cfg.Line, c.cfg.Fence, c.released, true
	c.toAllShards(rel)
}
