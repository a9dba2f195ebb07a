package sim

import (
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// settle is roster.Config.Settle in this package.
const settle = 200 * time.Millisecond

// never is later than the end of any run.
const never = 1000 * time.Hour

// estrange makes two servers unable to reach each other for a while, again and again. Sometimes
// they can, and only say that they cannot: nothing may depend on what they say.
func (c *Cluster) estrange() {
	if c.cfg.Strange == 0 || !c.storming() {
		return
	}
	c.after(nil, time.Duration(c.rng.ExpFloat64()*float64(c.cfg.Strange)), func() {
		a, b := c.servers[c.rng.IntN(len(c.servers))], c.servers[c.rng.IntN(len(c.servers))]
		if a != b && !a.dead && !b.dead {
			until := c.now + c.spell()
			if c.chance(0.7) {
				c.block(a.proc, b.proc, until)
			}
			a.finds(b, until)
			if c.chance(0.5) {
				b.finds(a, until)
			}
		}
		c.estrange()
	})
}

// block makes two servers unable to reach each other. Their streams break.
func (c *Cluster) block(a, b *proc, until time.Duration) {
	c.say("%s and %s do not reach each other until %v", a.name, b.name, until)
	c.blocked[[2]int{a.id, b.id}], c.blocked[[2]int{b.id, a.id}] = until, until
	for _, s := range a.streams {
		if s.ends[0].at == b || s.ends[1].at == b {
			c.breakStream(s)
		}
	}
}

// finds makes a server report, after a while, that it does not reach another one, and later, some
// time after it does again, that it does.
func (s *serverLife) finds(other *serverLife, until time.Duration) {
	at := s.c.now + s.c.between(0, 500*time.Millisecond)
	if at >= until {
		return
	}
	l := other.member.Life()
	s.c.at(s.proc, at, func() {
		s.apart = append(slices.Clone(s.apart), l)
		s.c.strange++
		s.declare()
	})
	s.c.at(s.proc, until+s.c.between(0, 500*time.Millisecond), func() {
		s.apart = slices.Clone(s.apart)
		if i := slices.Index(s.apart, l); i >= 0 {
			s.apart = slices.Delete(s.apart, i, i+1)
		}
		s.declare()
	})
}

// leftOut counts the living servers that are in no chain of a view because they do not reach
// another server.
func (c *Cluster) leftOut(v kintsugi.View) {
	in := slices.Concat(v.Chains...)
	for i, s := range c.servers {
		apart := len(s.apart) > 0 || slices.ContainsFunc(c.servers, func(x *serverLife) bool { return slices.Contains(x.apart, s.member.Life()) })
		if apart && !s.dead && !slices.Contains(in, kintsugi.ServerID(i)) {
			c.parted++
		}
	}
}
