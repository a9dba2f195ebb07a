package conductor

import (
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// A server that is about to go and holds the only copy of a shard hands the shard over through the
// checkpoint: no more steps are decided, the newest version is saved, and then the server may go.
// The servers of the next view start from that version, so no step is lost. If the save fails, the
// hold ends: it is better to make steps that may be lost than none.

// hold is a run that stands still because a server is about to go.
type hold struct {
	on   bool
	from kintsugi.Step // 1 + the step whose save was begun for the hold; 0: none
	said bool
}

// Hold makes the run stand still at the next release: the version is saved, and then Ready.Held is
// set. It lasts until the view ends, or until the save fails.
func (c *Conductor) Hold(now time.Time) {
	if c.hold.on {
		return
	}
	c.hold.on = true
	c.proceed(now)
}

// stand saves the newest version if it is not saved, and then reports that the run stands still. No
// step is open.
func (c *Conductor) stand(now time.Time) {
	switch {
	case c.hold.said || c.save.step != nil: // the end of the save calls proceed
	case c.save.durable == c.released+1:
		c.hold.said = true
		step := c.released
		c.ready.Held = &step
	case c.save.newest == c.released+1 && c.hold.from == c.released+1: // the save has failed
		c.hold = hold{}
	default:
		c.hold.from = c.released + 1
		c.saveNewest(now)
	}
}

// saveNewest begins to save the newest version. No save is under way.
func (c *Conductor) saveNewest(now time.Time) {
	c.save.begin(now, c.released, c.cfg.Shards)
	rel := c.last
	rel.Line, rel.Fence, rel.Step, rel.Save = c.cfg.Line, c.cfg.Fence, c.released, true
	c.toAllShards(rel)
}
