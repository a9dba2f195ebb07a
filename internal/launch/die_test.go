package launch

import (
	"testing"
)

func TestADeathIsOrderedOnceAndHappensOnTheOccasionThatIsSaid(t *testing.T) {
	dir := t.TempDir()
	faults, err := ParseFaults([]string{"kill server/1 when saving 2", "kill worker/0 when pushing", "kill server/0 at step 5", "kill server/2 when joining 2"})
	if err != nil {
		t.Fatal(err)
	}
	if err := OrderDeaths(dir, faults); err != nil {
		t.Fatal(err)
	}
	died := 0
	kill := func() error { died++; return nil }
	life := func(p Part, states ...string) int {
		died = 0
		enter, err := Deaths(dir, p, kill)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range states {
			enter(s)
		}
		return died
	}
	if n := life(Part{Server, 1}, "saving", "pushing"); n != 0 {
		t.Error("server/1 died the first time it saved")
	}
	if n := life(Part{Server, 1}, "saving", "saving", "saving"); n != 0 {
		t.Error("the second life of server/1 died: the word was for one life")
	}
	if n := life(Part{Worker, 0}, "computing", "pushing", "pushing"); n != 1 {
		t.Errorf("worker/0 died %d times when it pushed, want once", n)
	}
	if n := life(Part{Server, 0}, "pushing", "committing", "publishing", "saving", "naming"); n != 0 {
		t.Error("server/0 died of a fault that names a step")
	}
	if n := life(Part{Server, 2}, "pushing", "committing"); n != 0 {
		t.Error("server/2 died before it joined")
	}
	if n := life(Part{Server, 2}, "joining", "joining", "joining"); n != 1 {
		t.Errorf("the second life of server/2 died %d times when it joined, want once", n)
	}
	if n := life(Part{Server, 2}, "joining", "joining"); n != 0 {
		t.Error("the third life of server/2 died as well")
	}
	for _, f := range faults {
		if again, err := ParseFault(f.String()); err != nil || again != f {
			t.Errorf("%q reads as %+v, %v", f.String(), again, err)
		}
	}
}
