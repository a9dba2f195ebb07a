package data

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// digest returns the first half of the SHA-256 of all that a set contains.
func digest(t *testing.T, s *Set) string {
	t.Helper()
	h := sha256.New()
	write := func(list any) {
		if err := binary.Write(h, binary.LittleEndian, list); err != nil {
			t.Fatal(err)
		}
	}
	for _, half := range []Examples{s.Train, s.Test} {
		switch e := half.(type) {
		case *Ratings:
			write(e.User)
			write(e.Item)
			write(e.Value)
		case *Vectors:
			write(e.X)
			write(e.Y)
		}
	}
	if s.Corpus != nil {
		for _, d := range []*Documents{s.Corpus.Train, s.Corpus.Test} {
			write(d.Words)
			for _, at := range d.Start {
				write(int64(at))
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// TestPlantedSetsAreFrozen: figures in documents and checkpoints of runs refer to these bits.
func TestPlantedSetsAreFrozen(t *testing.T) {
	for name, want := range map[string]string{
		"ratings": "54c0328702ae2d9e4229034c6121cdaf",
		"topics":  "c4d18857806f9dcd9497119443002363",
		"cover":   "e0166e039050759321f44909eee90819",
	} {
		s, err := Open(name, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := digest(t, s); got != want {
			t.Errorf("%s has the digest %s, want %s", name, got, want)
		}
	}
}

func TestRatingsAreNumberedSplitAndStandardised(t *testing.T) {
	dir := t.TempDir()
	write(t, []byte("7\t100\t5\t881250949\n7\t300\t1\t1\n9\t100\t5\t1\n9\t100\t1\t1\n"), dir, "movielens-100k", "u1.base")
	write(t, []byte("9\t300\t4\t1\r\n12\t200\t2\n"), dir, "movielens-100k", "u1.test")
	s, err := Open("movielens", dir)
	if err != nil {
		t.Fatal(err)
	}
	if s.Users != 3 || s.Items != 3 || s.Train.Len() != 4 || s.Test.Len() != 2 {
		t.Errorf("%d users, %d items, %d and %d ratings", s.Users, s.Items, s.Train.Len(), s.Test.Len())
	}
	x := make([]float32, 6)
	s.Test.Fill(x, nil, []int{1, 0})
	if want := [6]float32{2, 1, -0.5, 1, 2, 0.5}; [6]float32(x) != want { // the mean of 5, 1, 5 and 1 is 3, and their deviation is 2
		t.Errorf("the test ratings are %v, want %v", x, want)
	}
	csv := []byte("user,joke,rating\n")
	for i := range 200 {
		csv = fmt.Appendf(csv, "%d,%d,%.2f\n", i/10, i%10, float64(i)/20-5)
	}
	write(t, csv, dir, "jester5k-ratings.csv.gz") // not compressed, whatever its name says
	if s, err = Open("jester", dir); err != nil {
		t.Fatal(err)
	}
	train, test := s.Train.(*Ratings), s.Test.(*Ratings)
	if n := test.Len(); train.Len()+n != 200 || n < 20 || n > 60 || s.Users != 20 || s.Items != 10 {
		t.Errorf("%d ratings to train on and %d to test on, of %d users and %d items", train.Len(), n, s.Users, s.Items)
	}
	sum := 0.0
	for _, v := range train.Value {
		sum += float64(v)
	}
	if math.Abs(sum) > 1e-3 {
		t.Errorf("the training values add up to %g, want 0", sum)
	}
}

func TestDocumentsAreReadWordByWord(t *testing.T) {
	dir := t.TempDir()
	write(t, []byte("2 3:2 1:1\n0\n1 0:3\n"), dir, "20news.train.ldac.gz")
	write(t, []byte("3 0:1 2:5 3:1\n"), dir, "20news.test.ldac.gz")
	s, err := Open("20news", dir)
	if err != nil {
		t.Fatal(err)
	}
	c := s.Corpus
	got := fmt.Sprint(c.Vocabulary, c.Train.Len(), c.Train.Tokens(0), c.Train.Tokens(1), c.Train.Tokens(2), c.Test.Len(), c.Test.Tokens(0))
	if want := "4 3 [3 3 1] [] [0 0 0] 1 [0 3]"; got != want { // no training document has word 2
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestVectorsAreDenseAndCountClassesFromZero(t *testing.T) {
	dir := t.TempDir()
	write(t, []byte("1 1:0.5 3:-2\n7 2:1\n"), dir, "covtype.scale.train.small")
	write(t, []byte("2\n"), dir, "covtype.scale.test.small")
	s, err := Open("covtype", dir)
	if err != nil {
		t.Fatal(err)
	}
	x, y := make([]float32, 6), make([]int32, 2)
	s.Train.Fill(x, y, []int{1, 0})
	if got, want := fmt.Sprint(x, y, s.Classes, s.Shape), "[0 1 0 0.5 0 -2] [6 0] 7 [3 1 1]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	path := write(t, []byte("0 1:1\n3 2:1\n"), dir, "own")
	v, err := ReadLIBSVM(path, 5)
	if err != nil || v.Features != 5 || v.Classes != 4 || v.Y[0] != 0 || v.Y[1] != 3 {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestFilesThatAreNotWhatTheyShouldBeAreRefusedByLine(t *testing.T) {
	for _, c := range []struct{ set, first, second, says string }{
		{"movielens", "", "1\t1\t1\n", "empty"},
		{"movielens", "1\t2\t3\nx\t2\t3\n", "1\t1\t1\n", "line 2: "},
		{"movielens", "1\t2\t3\n1\t2\n", "1\t1\t1\n", "line 2: "},
		{"movielens", "1\t2\t3\n1\t2\tNaN\n", "1\t1\t1\n", "not a number"},
		{"movielens", "1\t2\t3\n16777216\t2\t1\n", "1\t1\t1\n", "below 16777216"},
		{"movielens", "user,item,rating\n", "1\t1\t1\n", "no rating"},
		{"movielens", "\x1f\x8b\x00", "1\t1\t1\n", "gzip"},
		{"20news", "2 1:1\n", "1 1:1\n", "2\" different words and has 1"},
		{"20news", "1 1:0\n", "1 1:1\n", "count"},
		{"20news", "1 1:65536\n", "1 1:1\n", "count"},
		{"20news", "1 99999999999:1\n", "1 1:1\n", "below"},
		{"20news", "\n", "1 1:1\n", "line 1"},
		{"20news", "0\n", "1 1:1\n", "to train on"},
		{"covtype", "1.5 1:1\n", "1 1:1\n", "class"},
		{"covtype", "1 2:1 2:1\n", "1 1:1\n", "above 2"},
		{"covtype", "1 0:1\n", "1 1:1\n", "above 0"},
		{"covtype", "1 1:Inf\n", "1 1:1\n", "number"},
		{"covtype", "1\n", "1\n", "features"},
		{"covtype", strings.Repeat("1 16777215:1\n", 9), "1 1:1\n", "values"},
	} {
		dir := t.TempDir()
		s, err := find(c.set)
		if err != nil {
			t.Fatal(err)
		}
		write(t, []byte(c.first), dir, s.files[0].name)
		write(t, []byte(c.second), dir, s.files[1].name)
		if _, err := Open(c.set, dir); !errors.Is(err, kintsugi.ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s with %.40q: %v, want ErrCorrupt that says %q", c.set, c.first, err, c.says)
		}
	}
	for _, name := range []string{"movielens", "jester", "20news", "covtype"} {
		if _, err := Open(name, t.TempDir()); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), "there is no") {
			t.Errorf("%s in an empty folder: %v", name, err)
		}
	}
	if err := Fetch(t.Context(), "jester", t.TempDir(), Options{}); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("fetch of what nobody publishes: %v", err)
	}
}

// Some programs begin a text with a byte order mark. It must not be taken for a header, or the
// first rating would be skipped.
func TestAByteOrderMarkIsNoPartOfALine(t *testing.T) {
	r, err := ReadRatings(write(t, []byte("\ufeff1,2,3\n4,5,6\n"), t.TempDir(), "own"))
	if err != nil || r.Len() != 2 || r.User[0] != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A folder or a pipe in place of a file is a usage error, and is not waited for.
func TestFoldersAndPipesAreNoFilesOfData(t *testing.T) {
	for name, file := range map[string]string{"movielens": "u1.base", "covtype": "covtype.scale.train.small", "20news": "20news.train.ldac.gz", "shakespeare": "input.txt", "cifar10": "cifar-10-binary.tar.gz"} {
		for what, place := range map[string]func(path string) error{
			"folder": func(path string) error { return os.Mkdir(path, 0o700) },
			"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		} {
			dir := t.TempDir()
			s, err := find(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range s.files {
				if f.name != file {
					write(t, []byte("1"), dir, f.name)
				}
			}
			if err := place(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				_, err := Open(name, dir)
				done <- err
			}()
			select {
			case err := <-done:
				if !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), file+" is not a file") {
					t.Errorf("%s where %s is a %s: %v", name, file, what, err)
				}
			case <-time.After(20 * time.Second):
				t.Errorf("%s where %s is a %s is waited for", name, file, what)
			}
		}
	}
}

// fuzzLines checks a reader of lines: it refuses a file, or reads all of it.
func fuzzLines(f *testing.F, check func(t *testing.T, path string) error, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		path := fmt.Sprintf("%s/%d", dir, os.Getpid())
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := check(t, path); err != nil && !errors.Is(err, kintsugi.ErrCorrupt) {
			t.Errorf("%v, want ErrCorrupt", err)
		}
	})
}

func FuzzRatings(f *testing.F) {
	fuzzLines(f, func(t *testing.T, path string) error {
		r, err := ReadRatings(path)
		if err != nil {
			return err
		}
		if r.Len() == 0 || len(r.User) != r.Len() || len(r.Item) != r.Len() {
			t.Fatalf("%d users, %d items, %d values", len(r.User), len(r.Item), r.Len())
		}
		for i, v := range r.Value {
			if r.User[i] < 0 || r.User[i] >= maxID || r.Item[i] < 0 || r.Item[i] >= maxID || v-v != 0 {
				t.Fatalf("rating %d is %v by %d of %d", i, v, r.User[i], r.Item[i])
			}
		}
		return nil
	}, "1\t2\t3\t4\n", "user,item,rating\n1,2,-3.5\n", "1\t2\t1e39\n1\t2\t1\n", "\x1f\x8b\x08")
}

func FuzzLDAC(f *testing.F) {
	fuzzLines(f, func(t *testing.T, path string) error {
		d, words, err := ReadLDAC(path)
		if err != nil {
			return err
		}
		if d.Start[0] != 0 || d.Start[d.Len()] != len(d.Words) {
			t.Fatalf("documents begin at %v in %d tokens", d.Start, len(d.Words))
		}
		for _, w := range d.Words {
			if w < 0 || int(w) >= words {
				t.Fatalf("word %d of %d", w, words)
			}
		}
		return nil
	}, "2 0:1 5:3\n0\n", "1 1:65535\n", "1 1:1 \r\n")
}

func FuzzLIBSVM(f *testing.F) {
	fuzzLines(f, func(t *testing.T, path string) error {
		v, err := ReadLIBSVM(path, 3)
		if err != nil {
			return err
		}
		if v.Features < 3 || len(v.X) != v.Features*v.Len() {
			t.Fatalf("%d values for %d vectors of %d", len(v.X), v.Len(), v.Features)
		}
		for _, y := range v.Y {
			if y < 0 || int(y) >= v.Classes {
				t.Fatalf("class %d of %d", y, v.Classes)
			}
		}
		return nil
	}, "1 1:2 3:4\n2\n", "0 7:1e-50\n")
}

// TestThePublishedRatingsAndDocumentsReadAsPublished compares the sets with what their publishers say of them.
func TestThePublishedRatingsAndDocumentsReadAsPublished(t *testing.T) {
	dir := os.Getenv("KINTSUGI_DATA")
	if dir == "" {
		t.Skip("set KINTSUGI_DATA to the folder that holds movielens-100k, jester-5k, 20news-bydate, reuters-21578 and covtype-small")
	}
	if testing.Short() {
		t.Skip("it reads all of five sets; run it without -short")
	}
	for name, want := range map[string]string{
		"movielens": "943 users, 1682 items, 80000 + 20000 ratings",
		"jester":    "5000 users, 100 items, 363209 ratings",
		"20news":    "13644 words, 11314 + 7532 documents, 1535991 + 881294 tokens",
		"reuters":   "8294 words, 9603 + 3299 documents, 701587 + 217793 tokens",
		"covtype":   "54 features, 7 classes, 500 + 50 vectors",
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(name, dir)
			if errors.Is(err, kintsugi.ErrUsage) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := Verify(name, dir); err != nil {
				t.Error(err)
			}
			got := ""
			switch c := s.Corpus; {
			case name == "jester":
				got = fmt.Sprintf("%d users, %d items, %d ratings", s.Users, s.Items, s.Train.Len()+s.Test.Len())
			case c != nil:
				got = fmt.Sprintf("%d words, %d + %d documents, %d + %d tokens", c.Vocabulary, c.Train.Len(), c.Test.Len(), len(c.Train.Words), len(c.Test.Words))
			case s.Users > 0:
				got = fmt.Sprintf("%d users, %d items, %d + %d ratings", s.Users, s.Items, s.Train.Len(), s.Test.Len())
			default:
				got = fmt.Sprintf("%d features, %d classes, %d + %d vectors", s.Train.Values(), s.Classes, s.Train.Len(), s.Test.Len())
			}
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}
