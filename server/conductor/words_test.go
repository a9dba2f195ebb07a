package conductor_test

import (
	"fmt"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// describe describes a message in words.
func describe(message any) string {
	switch m := message.(type) {
	case kintsugi.Hello:
		return fmt.Sprintf("hello, incarnation %d", m.Incarnation)
	case kintsugi.Ticket:
		if len(m.Views) == 0 {
			return fmt.Sprintf("has thrown %s away", gradient(m.Push))
		}
		return "ticket of " + gradient(m.Push)
	case kintsugi.Admitted:
		return fmt.Sprintf("admitted at version %d", m.Step)
	case kintsugi.Refused:
		return fmt.Sprintf("%s is refused: %s", gradient(m.Push), m.Reason)
	case kintsugi.Take:
		return fmt.Sprintf("take, fence %d", m.Fence)
	case kintsugi.Taken:
		s := fmt.Sprintf("taken, fence %d: applied %d, released %d", m.Fence, m.Applied, m.Released)
		for _, c := range m.Records {
			s += fmt.Sprintf(", record of step %d", c.Step)
		}
		if len(m.Lacks) > 0 {
			s += ", lacks " + list(m.Lacks)
		}
		return s
	case kintsugi.Adopt:
		return fmt.Sprintf("the line begins at step %d", m.Step)
	case kintsugi.Members:
		return fmt.Sprintf("members (change %d): %s", m.Change, countable(m.Countable))
	case kintsugi.MembersKnown:
		return fmt.Sprintf("knows change %d", m.Change)
	case kintsugi.Commit:
		return fmt.Sprintf("commit step %d of %s", m.Step, weighted(m))
	case kintsugi.Stable:
		return fmt.Sprintf("stable at step %d", m.Step)
	case kintsugi.Released:
		s := fmt.Sprintf("released %d", m.Step)
		if m.Save {
			s += ", save it"
		}
		return s
	case kintsugi.Saved:
		if m.Err != "" {
			return fmt.Sprintf("version %d is not saved: %s", m.Step, m.Err)
		}
		return fmt.Sprintf("saved version %d", m.Step)
	case kintsugi.Done:
		return fmt.Sprintf("done at step %d: %s", m.Step, m.Reason)
	case kintsugi.StepEvent:
		return describeStep(m)
	case kintsugi.CheckpointEvent:
		if m.Err != "" {
			return fmt.Sprintf("no checkpoint of step %d: %s", m.Step, m.Err)
		}
		return fmt.Sprintf("checkpoint of step %d is %s, %d bytes", m.Step, m.Manifest, m.Bytes)
	}
	panic(fmt.Sprintf("a %T has no words", message))
}

// gradient names a gradient whose worker is clear from the context.
func gradient(p kintsugi.PushID) string {
	if p.Sequence > 0 {
		return fmt.Sprintf("version %d sequence %d", p.Version, p.Sequence)
	}
	return fmt.Sprintf("version %d", p.Version)
}

func describeStep(e kintsugi.StepEvent) string {
	s := fmt.Sprintf("step %d counts %s", e.Step, list(e.Counted))
	if e.Reason != "" {
		s += fmt.Sprintf("; waited for %s", e.Reason)
	}
	if e.Staleness > 0 {
		s += fmt.Sprintf(", staleness %d", e.Staleness)
	}
	if e.Late > 0 {
		s += fmt.Sprintf(", refused since the step before: %d", e.Late)
	}
	return s
}

func weighted(c kintsugi.Commit) string {
	var s []string
	for _, w := range c.Counted {
		s = append(s, fmt.Sprintf("%v (weight %v)", w.Push, w.Weight))
	}
	return fmt.Sprintf("%s, scale %v", strings.Join(s, ", "), c.Scale)
}

func countable(list []kintsugi.Countable) string {
	if len(list) == 0 {
		return "nobody"
	}
	var s []string
	for _, c := range list {
		if c.Oldest == kintsugi.Never {
			s = append(s, fmt.Sprintf("worker/%d@%d is gone, counted on version %d", c.Slot, c.Incarnation, c.Version))
			continue
		}
		s = append(s, fmt.Sprintf("worker/%d@%d from version %d", c.Slot, c.Incarnation, c.Oldest))
	}
	return strings.Join(s, ", ")
}

func list(pushes []kintsugi.PushID) string {
	var s []string
	for _, p := range pushes {
		s = append(s, p.String())
	}
	return strings.Join(s, ", ")
}
