package object

import (
	"errors"
	"io/fs"
	"slices"
	"testing"
	"time"
)

// An upload whose client has died holds its parts until none came for ten minutes. One that goes on
// stays.
func TestAKeeperForgetsUploadsThatNobodyContinues(t *testing.T) {
	k := NewKeeper(10)
	now := time.Now()
	dead, alive := k.begin(now.Add(-time.Hour)), k.begin(now.Add(-time.Hour))
	k.uploads[dead].parts[1] = []byte("12345678")
	k.uploads[dead].bytes = 8
	if err := k.part(alive, 1, []byte("12")); err != nil { // it is heard of now
		t.Fatal(err)
	}
	if err := k.part(alive, 2, []byte("345")); err == nil {
		t.Error("it takes more than its limit")
	}
	next := k.begin(now.Add(time.Second))
	if err := k.part(dead, 2, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an upload that was forgotten takes a part: %v", err)
	}
	for _, id := range []int{alive, next} {
		if err := k.part(id, 2, []byte("345")); err != nil {
			t.Errorf("upload %d: %v", id, err)
		}
	}
	if err := k.complete(alive, "a"); err != nil || !slices.Equal(k.mem.Objects()["a"], []byte("12345")) {
		t.Errorf("%v; it holds %q", err, k.mem.Objects())
	}
}

// All times of a place with a patience are in proportion to it, so that as many bytes fit into a
// longer try, and the pauses between tries grow as well.
func TestRetriesAreInProportionToThePatienceOfAPlace(t *testing.T) {
	if got := (Place{}).Retries(); got != DefaultRetries() {
		t.Errorf("without a patience: %+v", got)
	}
	want := Retries{Tries: 7, First: 50 * time.Millisecond, Timeout: 5 * time.Second, Rate: 1 << 20}
	if got := (Place{Patience: 5 * time.Second}).Retries(); got != want {
		t.Errorf("of 5 s: %+v, want %+v", got, want)
	}
}
