package launch

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

func TestFaultsAreReadAsTheyAreWritten(t *testing.T) {
	tests := []struct {
		text string
		want Fault
	}{
		{"lose server/1 at step 500", Fault{Kind: Lose, Part: Part{Server, 1}, At: Moment{Step: 500}}},
		{"kill server/0 at step 500 for 5s", Fault{Kind: Kill, Part: Part{Server, 0}, At: Moment{Step: 500}, For: 5 * time.Second}},
		{"kill worker/1 at 20s", Fault{Kind: Kill, Part: Part{Worker, 1}, At: Moment{Elapsed: 20 * time.Second}}},
		{"kill coordinator at step 30", Fault{Kind: Kill, Part: Part{Role: Coordinator}, At: Moment{Step: 30}}},
		{"slow worker/2 x5 from step 100", Fault{Kind: Slow, Part: Part{Worker, 2}, Factor: 5, At: Moment{Step: 100}}},
		{"slow worker/2 x1.5 from step 100 to step 300", Fault{
			Kind: Slow, Part: Part{Worker, 2}, Factor: 1.5, At: Moment{Step: 100}, Until: Moment{Step: 300}}},
		{"slow worker/2 x5 from 10s to step 300", Fault{
			Kind: Slow, Part: Part{Worker, 2}, Factor: 5, At: Moment{Elapsed: 10 * time.Second}, Until: Moment{Step: 300}}},
		{"pause server/1 at step 300 for 1m30s", Fault{Kind: Pause, Part: Part{Server, 1}, At: Moment{Step: 300}, For: 90 * time.Second}},
		{"notice server/1 at step 300", Fault{Kind: Notice, Part: Part{Server, 1}, At: Moment{Step: 300}}},
		{"notice coordinator at 2s", Fault{Kind: Notice, Part: Part{Role: Coordinator}, At: Moment{Elapsed: 2 * time.Second}}},
		{"  pause\tserver/1  at 2h for 3ms ", Fault{
			Kind: Pause, Part: Part{Server, 1}, At: Moment{Elapsed: 2 * time.Hour}, For: 3 * time.Millisecond}},
	}
	for _, tt := range tests {
		got, err := ParseFault(tt.text)
		if err != nil {
			t.Errorf("%q: %v", tt.text, err)
			continue
		}
		if got != tt.want {
			t.Errorf("%q: got %+v, want %+v", tt.text, got, tt.want)
		}
		if want := strings.Join(strings.Fields(tt.text), " "); got.String() != want {
			t.Errorf("%q prints as %q", tt.text, got)
		}
	}
}

func TestWrongFaultsAreMarkedWhereTheyAreWrong(t *testing.T) {
	// The caret of each message stands under the first character of the word that is named here.
	tests := []struct{ text, at, reason string }{
		{"", "", `the fault ends here; want "kill", "lose", "pause", "slow" or "notice"`},
		{"murder server/0 at step 5", "murder", `want "kill", "lose", "pause", "slow" or "notice", not "murder"`},
		{"kill server at step 5", "server", "server needs a number; write server/0 for the first"},
		{"kill server/x at step 5", "server/x", `"x" is not the number of a server`},
		{"kill server/-1 at step 5", "server/-1", `"-1" is not the number of a server`},
		{"kill coordinator/0 at step 5", "coordinator/0", "there is one coordinator"},
		{"kill gpu/0 at step 5", "gpu/0", "want server/N, worker/N or coordinator"},
		{"kill server/0 step 5", "step", `want "at", not "step"`},
		{"kill server/0 at stp 5", "stp", `want "step N" or a time such as 20s, not "stp"`},
		{"kill server/0 at step", "", "the fault ends here; want the number of a step"},
		{"kill server/0 at step 0", "0", "steps are counted from 1"},
		{"kill server/0 at 20", "20", "20 has no unit; write 20s or 20ms"},
		{"kill server/0 at -3s", "-3s", "a time must be positive"},
		{"notice server/0 at step 5 for 3s", "for", `the fault is complete before "for"`},
		{"notice server/0 when saving", "when", `want "at", not "when"`},
		{"kill server/0 at 20s for", "", "the fault ends here; want a duration such as 5s"},
		{"kill server/0 at 20s for 5s twice", "twice", `the fault is complete before "twice"`},
		{"kill server/0 at 20s until 30s", "until", `want "for", not "until"`},
		{"pause server/0 at 20s", "", `the fault ends here; want "for"`},
		{"slow server/0 x5 from step 3", "server/0", "only a worker can be slowed"},
		{"lose worker/0 at step 3", "worker/0", "only a server leaves anything outside its process"},
		{"slow worker/0 5 from step 3", "5", "want a factor such as x5"},
		{"slow worker/0 x1 from step 3", "x1", "the factor must be above 1"},
		{"slow worker/0 xNaN from step 3", "xNaN", "want a factor such as x5"},
		{"slow worker/0 x2 from step 3 to step 3", "step 3", "it ends at step 3, which is not after step 3"},
		{"slow worker/0 x2 from 9s to 8s", "8s", "it ends at 8s, which is not after 9s"},
	}
	for _, tt := range tests {
		_, err := ParseFault(tt.text)
		var fe *FaultError
		if !errors.As(err, &fe) || !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%q: got error %v, want a FaultError that wraps ErrUsage", tt.text, err)
			continue
		}
		if !strings.Contains(fe.Reason, tt.reason) {
			t.Errorf("%q: reason %q, want %q", tt.text, fe.Reason, tt.reason)
		}
		want := len(tt.text)
		if tt.at != "" {
			want = strings.LastIndex(tt.text, tt.at)
		}
		if fe.Offset != want {
			t.Errorf("%q: marked at %d, want %d", tt.text, fe.Offset, want)
		}
		if !strings.Contains(err.Error(), "kill server/0 at step 500 for 5s") {
			t.Errorf("%q: the message does not show the grammar:\n%v", tt.text, err)
		}
	}
}

func TestFaultErrorPointsAtTheCharacter(t *testing.T) {
	_, err := ParseFault("kill\tserver/0 at stp 5")
	want := "fault: character 18: want \"step N\" or a time such as 20s, not \"stp\"\n" +
		"    kill·server/0 at stp 5\n" +
		"                     ^\n" + faultGrammar
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestFaultsOnPartsThatDoNotExistAreRefused(t *testing.T) {
	tests := []struct {
		part             Part
		servers, workers int
		want             string // "" if the part exists
	}{
		{Part{Server, 1}, 2, 4, ""},
		{Part{Worker, 3}, 2, 4, ""},
		{Part{Role: Coordinator}, 1, 1, ""},
		{Part{Server, 5}, 2, 4, "server/5: there are 2 servers, server/0 and server/1"},
		{Part{Server, 1}, 1, 4, "server/1: there is 1 server, server/0"},
		{Part{Worker, 4}, 2, 4, "worker/4: there are 4 workers, worker/0 to worker/3"},
		{Part{Worker, 0}, 2, 0, "worker/0: there are no workers"},
	}
	for _, tt := range tests {
		err := Fault{Kind: Kill, Part: tt.part, At: Moment{Step: 1}}.Check(tt.servers, tt.workers)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.part, err)
			}
			continue
		}
		if !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.part, err, tt.want)
		}
	}
}

// What is read can be printed and read again. What is refused is refused with a message.
func FuzzParseFault(f *testing.F) {
	for line := range strings.Lines(faultGrammar) {
		f.Add(strings.TrimSpace(line))
	}
	f.Add("slow worker/1 x1e300 from 1ns to 2562047h")
	f.Add("kill \xff/0")
	f.Fuzz(func(t *testing.T, text string) {
		fault, err := ParseFault(text)
		if err != nil {
			var fe *FaultError
			if !errors.As(err, &fe) || fe.Offset < 0 || fe.Offset > len(text) || err.Error() == "" {
				t.Fatalf("%q: unusable error %#v", text, err)
			}
			return
		}
		again, err := ParseFault(fault.String())
		if err != nil || again != fault {
			t.Fatalf("%q reads as %+v, prints as %q, reads again as %+v, %v", text, fault, fault, again, err)
		}
	})
}
