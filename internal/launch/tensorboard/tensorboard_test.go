package tensorboard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// shown is a point of a curve as TensorBoard shows it.
type shown struct {
	step  uint64
	value float64
	wall  float64
}

// read reads a file as TensorBoard does: what begins again voids later steps. It shares no code with
// what writes the file, apart from the encoding of protobuf.
func read(t *testing.T, file []byte, curves map[string][]shown) {
	t.Helper()
	field := func(b []byte, want protowire.Number) (v []byte) {
		for len(b) > 0 {
			n, kind, size := protowire.ConsumeTag(b)
			if size < 0 {
				t.Fatalf("a message with a wrong tag: %x", b)
			}
			b = b[size:]
			if size = protowire.ConsumeFieldValue(n, kind, b); size < 0 {
				t.Fatalf("a message with a wrong value: %x", b)
			}
			if n == want {
				v = b[:size]
			}
			b = b[size:]
		}
		return v
	}
	inner := func(v []byte) []byte { b, _ := protowire.ConsumeBytes(v); return b }
	for first := true; len(file) > 0; first = false {
		n := binary.LittleEndian.Uint64(file)
		event := file[12 : 12+n]
		for _, sum := range []struct{ of, at []byte }{{file[:8], file[8:]}, {event, file[12+n:]}} {
			if got, want := binary.LittleEndian.Uint32(sum.at), masked(sum.of); got != want {
				t.Fatalf("checksum %x, want %x", got, want)
			}
		}
		file = file[16+n:]
		if is := string(inner(field(event, 3))); first != (is == "brain.Event:2") {
			t.Fatalf("first %v, version %q", first, is)
		}
		var step, status uint64
		if v := field(event, 2); v != nil {
			step, _ = protowire.ConsumeVarint(v)
		}
		wall, _ := protowire.ConsumeFixed64(field(event, 1))
		if v := field(inner(field(event, 7)), 1); v != nil {
			status, _ = protowire.ConsumeVarint(v)
		}
		if status == 1 {
			for tag, points := range curves {
				curves[tag] = slices.DeleteFunc(points, func(p shown) bool { return p.step >= step })
			}
		}
		for summary := inner(field(event, 5)); len(summary) > 0; {
			_, _, size := protowire.ConsumeTag(summary)
			value, more := protowire.ConsumeBytes(summary[size:])
			summary = summary[size+more:]
			bits, _ := protowire.ConsumeFixed32(field(value, 2))
			tag := string(inner(field(value, 1)))
			curves[tag] = append(curves[tag], shown{step, float64(math.Float32frombits(bits)), math.Float64frombits(wall)})
		}
	}
}

// The length of the first record and its checksum are those with which TensorFlow's own files begin.
func TestAFileBeginsAsThoseOfTensorFlow(t *testing.T) {
	var b bytes.Buffer
	newWriter(&b, time.Unix(1e9, 0))
	if want := []byte{0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22, 0x09}; !bytes.HasPrefix(b.Bytes(), want) {
		t.Errorf("it begins with %x, want %x", b.Bytes()[:len(want)], want)
	}
	read(t, b.Bytes(), nil)
}

var zero = time.Unix(1_700_000_000, 0)

func header() *record.Header { return &record.Header{Start: zero} }

// at returns an event with its time.
func at[E record.Event](e E, seconds float64) E {
	reflect.ValueOf(e).Elem().FieldByName("Seconds").SetFloat(seconds)
	return e
}

func taken(line, step uint64, seconds, loss float64) *record.Step {
	return at(&record.Step{Line: line, Step: step, Loss: record.Number(loss), Norm: 2, Counted: []uint32{0, 1}, Quota: 2, Examples: 8, WaitSeconds: 0.5, ApplySeconds: 0.25, PushedBytes: 100}, seconds)
}

func TestFiguresOfAStep(t *testing.T) {
	var b bytes.Buffer
	w := newWriter(&b, zero)
	w.Add(header())
	w.Add(taken(1, 1, 10, 3))
	w.Add(at(&record.Evaluation{Line: 1, Step: 1, Loss: 4, Accuracy: record.Unknown()}, 11))
	w.Add(at(&record.Checkpoint{Line: 1, Step: 1, Bytes: 7, TookSeconds: 0.5}, 12))
	w.Add(at(&record.Checkpoint{Line: 1, Step: 1, Bytes: 9, Running: true}, 12))
	w.Add(at(&record.Checkpoint{Line: 1, Step: 1, Bytes: 9, Error: "full"}, 12))
	w.Add(at(&record.Recovery{RecoverySeconds: 0.125, LostSteps: 5, CaughtUpSeconds: record.Unknown()}, 13))
	w.Add(at(&record.Recovery{RecoverySeconds: 0.125, LostSteps: 5, CaughtUpSeconds: 0.5}, 13.5))
	w.Add(at(&record.Exposure{Step: 1, Servers: []record.ServerCost{{Steps: 3}, {Steps: 6}, {Steps: 2}}}, 14))
	w.Add(at(&record.Exposure{Step: 1, Servers: []record.ServerCost{{Steps: 9}, {Steps: record.Unknown()}}}, 15))
	w.Add(&record.Note{})
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	got := make(map[string][]shown)
	read(t, b.Bytes(), got)
	z := float64(zero.Unix())
	want := map[string][]shown{
		"train/loss": {{1, 3, z + 10}}, "train/gradient_norm": {{1, 2, z + 10}}, "train/steps_per_second": {{1, 1 / 0.75, z + 10}}, "train/examples_per_second": {{1, 8 / 0.75, z + 10}},
		"step/wait_seconds": {{1, 0.5, z + 10}}, "step/apply_seconds": {{1, 0.25, z + 10}},
		"gradients/quota": {{1, 2, z + 10}}, "gradients/counted": {{1, 2, z + 10}}, "gradients/late": {{1, 0, z + 10}}, "gradients/clipped": {{1, 0, z + 10}}, "gradients/staleness_steps": {{1, 0, z + 10}},
		"wire/pushed_bytes_per_second": {{1, 100 / 0.75, z + 10}}, "wire/pulled_bytes_per_second": {{1, 0, z + 10}},
		"test/loss":        {{1, 4, z + 11}},
		"checkpoint/bytes": {{1, 7, z + 12}}, "checkpoint/seconds": {{1, 0.5, z + 12}},
		"failure/recovery_seconds": {{1, 0.125, z + 13}}, "failure/lost_steps": {{1, 5, z + 13}}, "failure/made_up_seconds": {{1, 0.5, z + 13.5}}, "failure/at_risk_steps": {{1, 6, z + 14}},
	}
	for tag := range maps.Keys(want) {
		for i := range want[tag] {
			want[tag][i].value = float64(float32(want[tag][i].value))
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("shown is\n%v, want\n%v", got, want)
	}
}

// Steps that are taken again replace those of before. A partial recovery begins a line as well, but
// takes nothing back. A step of which no loss is known has none.
func TestStepsThatAreTakenAgainReplaceTheOthers(t *testing.T) {
	var b bytes.Buffer
	w := newWriter(&b, zero)
	w.Add(header())
	for i := range uint64(10) {
		w.Add(taken(1, 1+i, float64(i), 1))
	}
	for i := range uint64(7) { // from step 6 on, on line 2
		w.Add(taken(2, 6+i, 20+float64(i), 2))
	}
	unknown := taken(3, 13, 40, 0)
	unknown.Examples, unknown.Norm = 0, record.Unknown()
	w.Add(unknown)
	w.Add(taken(3, 14, 41, 3))
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	curves := make(map[string][]shown)
	read(t, b.Bytes(), curves)
	var got []string
	for _, p := range curves["train/loss"] {
		got = append(got, fmt.Sprint(p.step, p.value))
	}
	want := []string{"1 1", "2 1", "3 1", "4 1", "5 1", "6 2", "7 2", "8 2", "9 2", "10 2", "11 2", "12 2", "14 3"}
	if !slices.Equal(got, want) {
		t.Errorf("losses %v, want %v", got, want)
	}
	if n := len(curves["gradients/counted"]); n != 14 {
		t.Errorf("%d points of gradients, want one for each of 14 steps", n)
	}
}

// A long run has few points, and each is the mean of its steps.
func TestALongRunHasFewPoints(t *testing.T) {
	var b bytes.Buffer
	w := newWriter(&b, zero)
	w.Add(header())
	const steps, perSecond = 300_000, 100
	for i := range uint64(steps) {
		w.Add(taken(1, 1+i, 1+float64(i)/perSecond, float64(i%2)))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	curves := make(map[string][]shown)
	read(t, b.Bytes(), curves)
	points := curves["train/loss"]
	if n, most := len(points), int(1.1*pointsPerTime*math.Log(steps/perSecond)); n < pointsPerTime || n > most {
		t.Errorf("%d points, want more than %d and at most %d", n, pointsPerTime, most)
	}
	last := points[len(points)-1]
	if last.step != steps || math.Abs(last.value-0.5) > 0.1 {
		t.Errorf("the last point is %v, want one of step %d and a mean of 0.5", last, steps)
	}
	if rate := curves["train/steps_per_second"]; math.Abs(rate[len(rate)-1].value-perSecond) > 1 {
		t.Errorf("%v steps per second, want %d", rate[len(rate)-1], perSecond)
	}
}

// What is written while a run goes on, also after it was resumed, shows what is written afterwards.
func TestARunIsShownAsItWasWatched(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	when := func(seconds float64) time.Time { return zero.Add(time.Duration(seconds * 1e9)) }
	rec, err := record.Create(dir, []byte("steps: 20\n"), *header())
	if err != nil {
		t.Fatal(err)
	}
	watch := func(rec *record.Recorder, from float64, steps ...*record.Step) {
		t.Helper()
		live, err := Open(dir, zero) // both files are begun in the same second
		if err != nil {
			t.Fatal(err)
		}
		rec.Tell(live.Add)
		for i, s := range steps {
			rec.Record(when(from+float64(i)), s)
		}
		if _, err := rec.Finish(when(from+float64(len(steps))), "enough"); err != nil {
			t.Error(err)
		}
		if err := live.Close(); err != nil {
			t.Error(err)
		}
	}
	watch(rec, 1, taken(1, 1, 0, 9), taken(1, 2, 0, 8), taken(1, 3, 0, 7), taken(1, 4, 0, 6))
	rec, _, err = record.Resume(dir, record.Header{Start: when(100)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	watch(rec, 101, taken(2, 3, 0, 5), taken(2, 4, 0, 4))

	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("files %v, %v; want two", files, err)
	}
	shows := func(names ...string) map[string][]shown {
		curves := make(map[string][]shown)
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			read(t, b, curves)
		}
		return curves
	}
	watched := shows(files...)
	path, err := Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	written := shows(path)
	var losses []float64
	for _, p := range written["train/loss"] {
		losses = append(losses, p.value)
	}
	if want := []float64{9, 8, 5, 4}; !slices.Equal(losses, want) {
		t.Errorf("losses %v, want %v", losses, want)
	}
	if all := shows(append([]string{path}, files...)...); !reflect.DeepEqual(all, watched) {
		t.Errorf("all files together show\n%v, those of the run alone\n%v", all, watched)
	}
	for tag, points := range written {
		for i, p := range points {
			if w := watched[tag]; i >= len(w) || w[i].step != p.step || w[i].value != p.value || math.Abs(w[i].wall-p.wall) > 1e-5 {
				t.Errorf("%s: written is %v, watched was %v", tag, points, watched[tag])
				break
			}
		}
	}
}

type full struct{ left int }

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errors.New("no space")
	}
	return len(b), nil
}

func TestTheFirstErrorStays(t *testing.T) {
	w := newWriter(&full{100}, zero)
	w.Add(header())
	for i := range uint64(10) {
		w.Add(taken(1, 1+i, float64(i), 1))
	}
	if err := w.Flush(); err == nil || err.Error() != "no space" {
		t.Errorf("error %v, want the first", err)
	}
	if _, err := Write(t.TempDir()); err == nil {
		t.Error("a folder without a run was read")
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), zero); err == nil {
		t.Error("a file was opened in a folder that is not there")
	}
}
