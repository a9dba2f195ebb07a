package launch

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kintsugi-ml/kintsugi"
)

// faultGrammar shows the grammar by example. It is the end of each error about a fault that cannot
// be parsed.
const faultGrammar = `write faults like
    kill server/0 at step 500 for 5s
    kill worker/1 at 20s
    kill coordinator at step 30
    kill server/0 when saving 3
    lose server/0 at step 500 for 5s
    pause server/1 at step 300 for 3s
    notice server/1 at step 300
    slow worker/2 x5 from step 100 to step 300`

// FaultError says where and why a fault could not be parsed. It wraps kintsugi.ErrUsage.
type FaultError struct {
	Text   string // the whole fault
	Offset int    // byte offset of the word that was not understood, or len(Text) at the end
	Reason string
}

// Error returns several lines: the reason, the fault with the position marked, and the grammar by
// example.
func (e *FaultError) Error() string {
	// One column per rune: a tab or an invalid byte would move the mark.
	shown := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r == utf8.RuneError || !unicode.IsPrint(r) {
				return '·'
			}
			return r
		}, s)
	}
	indent := strings.Repeat(" ", utf8.RuneCountInString(e.Text[:e.Offset]))
	return fmt.Sprintf("fault: character %d: %s\n    %s\n    %s^\n%s",
		utf8.RuneCountInString(e.Text[:e.Offset])+1, e.Reason, shown(e.Text), indent, faultGrammar)
}

// Unwrap returns kintsugi.ErrUsage.
func (e *FaultError) Unwrap() error { return kintsugi.ErrUsage }

// ParseFault parses a fault in one of these forms:
//
//	kill PART at MOMENT [for DURATION]
//	kill server/N|worker/N when STATE [TIMES]
//	lose server/N at MOMENT [for DURATION]
//	pause PART at MOMENT for DURATION
//	notice PART at MOMENT
//	slow worker/N xFACTOR from MOMENT [to MOMENT]
//
// PART is server/N, worker/N or coordinator. MOMENT is "step N" or a time since the start, such as
// 20s. DURATION is a number with a unit (ms, s, m, h). STATE is one of ServerStates or
// WorkerStates: the process kills itself when it enters the state for the TIMES-th time; the
// default is 1. Errors are of type *FaultError.
func ParseFault(text string) (Fault, error) {
	r := &faultReader{text: text}
	r.next()
	f, err := r.fault()
	if err != nil {
		return Fault{}, &FaultError{Text: text, Offset: r.at, Reason: err.Error()}
	}
	return f, nil
}

// ParseFaults parses one fault from each text. The text none, if it is the only one, stands for no faults.
func ParseFaults(texts []string) ([]Fault, error) {
	if len(texts) == 1 && texts[0] == "none" {
		return nil, nil
	}
	faults := make([]Fault, 0, len(texts))
	for _, t := range texts {
		f, err := ParseFault(t)
		if err != nil {
			return nil, err
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// faultReader reads the words of a fault. Its errors are about the current word.
type faultReader struct {
	text string
	at   int    // offset of the current word
	word string // "" at the end
	rest int    // offset of the end of the current word
}

func (r *faultReader) next() {
	isSpace := unicode.IsSpace
	r.at = len(r.text)
	if i := strings.IndexFunc(r.text[r.rest:], func(c rune) bool { return !isSpace(c) }); i >= 0 {
		r.at = r.rest + i
	}
	r.rest = len(r.text)
	if i := strings.IndexFunc(r.text[r.at:], isSpace); i >= 0 {
		r.rest = r.at + i
	}
	r.word = r.text[r.at:r.rest]
}

// want returns an error that says what is expected in place of the current word.
func (r *faultReader) want(what string) error {
	if r.word == "" {
		return fmt.Errorf("the fault ends here; want %s", what)
	}
	return fmt.Errorf("want %s, not %q", what, r.word)
}

func (r *faultReader) keyword(w string) error {
	if r.word != w {
		return r.want(strconv.Quote(w))
	}
	r.next()
	return nil
}

func (r *faultReader) fault() (f Fault, err error) {
	switch r.word {
	case "kill":
		f.Kind = Kill
	case "pause":
		f.Kind = Pause
	case "slow":
		f.Kind = Slow
	case "lose":
		f.Kind = Lose
	case "notice":
		f.Kind = Notice
	default:
		return f, r.want(`"kill", "lose", "pause", "slow" or "notice"`)
	}
	r.next()
	if f.Part, err = r.part(); err != nil {
		return f, err
	}
	if f.Kind == Slow && f.Part.Role != Worker {
		return f, fmt.Errorf("only a worker can be slowed, not %s; pause it instead", f.Part)
	}
	if f.Kind == Lose && f.Part.Role != Server {
		return f, fmt.Errorf("only a server leaves anything outside its process, not %s; kill it instead", f.Part)
	}
	r.next()
	switch f.Kind {
	case Slow:
		err = r.slow(&f)
	case Notice:
		err = r.when(&f)
	default:
		err = r.killOrPause(&f)
	}
	if err != nil {
		return f, err
	}
	if r.word != "" {
		return f, fmt.Errorf("the fault is complete before %q", r.word)
	}
	return f, nil
}

func (r *faultReader) killOrPause(f *Fault) (err error) {
	if f.Kind == Kill && r.word == "when" {
		r.next()
		f.At, err = r.state(f.Part.Role)
		return err
	}
	if err = r.when(f); err != nil {
		return err
	}
	if f.Kind != Pause && r.word == "" {
		return nil
	}
	if err = r.keyword("for"); err != nil {
		return err
	}
	f.For, err = r.duration("a duration such as 5s")
	return err
}

// when reads "at" and a moment.
func (r *faultReader) when(f *Fault) (err error) {
	if err = r.keyword("at"); err != nil {
		return err
	}
	f.At, err = r.moment()
	return err
}

func (r *faultReader) slow(f *Fault) (err error) {
	if f.Factor, err = r.factor(); err != nil {
		return err
	}
	if err = r.keyword("from"); err != nil {
		return err
	}
	if f.At, err = r.moment(); err != nil {
		return err
	}
	if r.word == "" {
		return nil
	}
	if err = r.keyword("to"); err != nil {
		return err
	}
	start := r.at
	if f.Until, err = r.moment(); err != nil {
		return err
	}
	sameUnit := (f.At.Step > 0) == (f.Until.Step > 0)
	if sameUnit && (f.Until.Step < f.At.Step || f.Until.Elapsed < f.At.Elapsed || f.Until == f.At) {
		r.at = start
		return fmt.Errorf("it ends at %s, which is not after %s", f.Until, f.At)
	}
	return nil
}

func (r *faultReader) part() (Part, error) {
	const what = "server/N, worker/N or coordinator"
	if r.word == "coordinator" {
		return Part{Role: Coordinator}, nil
	}
	role, index, found := strings.Cut(r.word, "/")
	var p Part
	switch role {
	case "server":
		p.Role = Server
	case "worker":
		p.Role = Worker
	case "coordinator":
		return p, errors.New("there is one coordinator; write it without a number")
	default:
		return p, r.want(what)
	}
	if !found {
		return p, fmt.Errorf("%s needs a number; write %s/0 for the first", role, role)
	}
	n, err := strconv.ParseUint(index, 10, 31)
	if err != nil {
		return p, fmt.Errorf("%q is not the number of a %s; write %s/0 for the first", index, role, role)
	}
	p.Index = int(n)
	return p, nil
}

func (r *faultReader) moment() (m Moment, err error) {
	if r.word != "step" {
		m.Elapsed, err = r.duration(`"step N" or a time such as 20s`)
		return m, err
	}
	r.next()
	n, err := strconv.ParseUint(r.word, 10, 63)
	if err != nil {
		return m, r.want("the number of a step")
	}
	if n == 0 {
		return m, errors.New("steps are counted from 1")
	}
	m.Step = kintsugi.Step(n)
	r.next()
	return m, nil
}

// state reads a state of a part, and at which entry the fault happens.
func (r *faultReader) state(role Role) (m Moment, err error) {
	known := map[Role][]string{Server: ServerStates(), Worker: WorkerStates()}[role]
	if len(known) == 0 {
		return m, errors.New("only servers and workers have states; write at and a moment")
	}
	if !slices.Contains(known, r.word) {
		return m, r.want("a state of a " + role.String() + ": " + strings.Join(known, ", "))
	}
	m.State, m.Times = r.word, 1
	r.next()
	if r.word == "" {
		return m, nil
	}
	if m.Times, err = strconv.Atoi(r.word); err != nil || m.Times < 1 {
		return m, r.want("how often the state is entered, from 1")
	}
	r.next()
	return m, nil
}

// duration reads a positive duration. what names the alternatives, for the error.
func (r *faultReader) duration(what string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(r.word, 64); err == nil && strings.ContainsAny(r.word[:1], "0123456789.") {
		return 0, fmt.Errorf("%s has no unit; write %ss or %sms", r.word, r.word, r.word)
	}
	d, err := time.ParseDuration(r.word)
	if err != nil {
		return 0, r.want(what)
	}
	if d <= 0 {
		return 0, fmt.Errorf("a time must be positive, and %s is not", r.word)
	}
	r.next()
	return d, nil
}

func (r *faultReader) factor() (float64, error) {
	const what = "a factor such as x5"
	digits, found := strings.CutPrefix(r.word, "x")
	if !found {
		return 0, r.want(what)
	}
	x, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, r.want(what)
	}
	if x <= 1 {
		return 0, fmt.Errorf("a slow worker takes longer: the factor must be above 1, and %s is not", r.word)
	}
	r.next()
	return x, nil
}
