package role

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/etcd"
)

func openedRank(t *testing.T, folder, what string, want int) *localRank {
	t.Helper()
	r, err := openRank(folder, what)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.file.Close() })
	if r.number != want {
		t.Errorf("a %s has rank %d, want %d", what, r.number, want)
	}
	return r
}

func TestARankIsTheLowestThatNoProcessOfTheHostHas(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "not", "there")
	zero, one := openedRank(t, folder, "worker", 0), openedRank(t, folder, "worker", 1)
	openedRank(t, folder, "server", 0)
	places := []etcd.Tenure{{Index: 7, Life: `{"incarnation":12,"mark":"A"}`}, {Index: 3, Life: "x"}}
	for i, r := range []*localRank{zero, one} {
		if before := r.before(); before != (etcd.Tenure{}) {
			t.Errorf("nobody has had rank %d, and its place is %v", i, before)
		}
		if err := r.keep(places[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := zero.file.Close(); err != nil { // as when the process dies
		t.Fatal(err)
	}
	next := openedRank(t, folder, "worker", 0)
	if before := next.before(); before != places[0] {
		t.Errorf("who had rank 0 had %v, want %v", before, places[0])
	}
	if err := next.keep(places[1]); err != nil { // which is shorter
		t.Fatal(err)
	}
	if before := next.before(); before != places[1] {
		t.Errorf("who has rank 0 has %v, want %v", before, places[1])
	}
	openedRank(t, folder, "worker", 2)
}

func TestAPlaceThatWasWrittenInPartIsNone(t *testing.T) {
	folder := t.TempDir()
	for _, text := range []string{"", "{", `{"index":1,"life":"`, `{"index":-1,"life":"x"}`, "[]", "null"} {
		if err := os.WriteFile(filepath.Join(folder, "worker-0"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := openedRank(t, folder, "worker", 0)
		if before := r.before(); before != (etcd.Tenure{}) {
			t.Errorf("%q is the place %v", text, before)
		}
		r.file.Close()
	}
	if err := (*localRank)(nil).keep(etcd.Tenure{}); err != nil || (*localRank)(nil).before() != (etcd.Tenure{}) {
		t.Errorf("without a rank there is a place: %v", err)
	}
}

func TestAHostThatKeepsNoRanksIsNoObstacle(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := openRank(file, "worker"); err == nil {
		t.Errorf("a file is taken for a folder, and has rank %d", r.number)
	}
}
