package data

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// writeSet writes the four files of a small set under the given names and returns its halves.
func writeSet(t *testing.T, seed uint64, dir string, names [4]string) (train, test *Images) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	train, test = randomImages(rng, 12, 1, 4, 5, 3), randomImages(rng, 6, 1, 4, 5, 2)
	for i, b := range [][]byte{
		encode(magicImages, train.Pixels, 12, 4, 5), encode(magicLabels, train.Labels, 12),
		encode(magicImages, test.Pixels, 6, 4, 5), encode(magicLabels, test.Labels, 6),
	} {
		if strings.HasSuffix(names[i], ".gz") {
			b = zip(b)
		}
		write(t, b, dir, names[i])
	}
	return train, test
}

var (
	plainNames  = [4]string{"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}
	zippedNames = [4]string{"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"}
	dottedNames = [4]string{"train-images.idx3-ubyte", "train-labels.idx1-ubyte", "t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte"}
	ownNames    = [4]string{"emnist-letters-Train-Images", "emnist-letters-Train-Labels.gz", "my_TEST_images.idx", "my_test_labels.idx"}
)

// openImages is Open for a set of images.
func openImages(name, dir string) (*ImageSet, error) {
	s, err := Open(name, dir)
	if err != nil {
		return nil, err
	}
	train, test := s.Train.(normalised), s.Test.(normalised)
	return &ImageSet{Name: s.Name, Train: train.Images, Test: test.Images, Mean: train.mean, Std: train.std}, nil
}

func TestSetsAreFoundWhereTheyAreKept(t *testing.T) {
	for _, c := range []struct {
		set, folder string
		names       [4]string
	}{
		{"mnist", "", plainNames}, {"mnist", "", zippedNames}, {"mnist", "", dottedNames}, {"mnist", "mnist", zippedNames},
		{"fashion", "", zippedNames}, {"fashion", "fashion-mnist", zippedNames},
		{"idx", "", plainNames}, {"idx", "", zippedNames}, {"idx", "", dottedNames}, {"idx", "", ownNames},
	} {
		dir := t.TempDir()
		write(t, []byte("what else there is"), dir, "README.md")
		train, test := writeSet(t, 1, filepath.Join(dir, c.folder), c.names)
		s, err := openImages(c.set, dir)
		if err != nil {
			t.Errorf("%s in %q: %v", c.set, c.folder, err)
			continue
		}
		if s.Name != c.set || !slices.Equal(s.Train.Pixels, train.Pixels) || !slices.Equal(s.Test.Labels, test.Labels) {
			t.Errorf("%s in %q: other content", c.set, c.folder)
		}
		if s.Train.Classes != 3 || s.Test.Classes != 3 {
			t.Errorf("%s: %d and %d classes, want 3 in both halves", c.set, s.Train.Classes, s.Test.Classes)
		}
	}
}

// The files of two sets have the same names, so a set's own folder is searched before the folder
// around it.
func TestASetsOwnFolderComesFirst(t *testing.T) {
	dir := t.TempDir()
	writeSet(t, 1, dir, plainNames)
	want, _ := writeSet(t, 2, filepath.Join(dir, "fashion-mnist"), zippedNames)
	s, err := openImages("fashion", dir)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Train.Pixels, want.Pixels) {
		t.Error("opened the set beside the folder fashion-mnist, not the one in it")
	}
}

func TestOpenSaysWhatToDo(t *testing.T) {
	empty := t.TempDir()
	half := t.TempDir()
	write(t, nil, half, "train-images-idx3-ubyte.gz")
	two := t.TempDir()
	writeSet(t, 1, two, ownNames)
	write(t, nil, two, "train.images.old")
	fashion := t.TempDir()
	writeSet(t, 1, fashion, zippedNames)
	if err := os.Truncate(filepath.Join(fashion, "train-labels-idx1-ubyte.gz"), 29515); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		set, dir string
		want     []string
	}{
		{"minst", empty, []string{`"minst"`, "digits, text, cover, ratings, topics, mnist, fashion, cifar10, cifar10-jpeg, shakespeare, covtype, movielens, jester, 20news, reuters, idx"}},
		{"mnist", "", []string{"--data-dir", "KINTSUGI_DATA", "kintsugi data fetch mnist"}},
		{"idx", "", []string{"--data-dir", "KINTSUGI_DATA"}},
		{"mnist", filepath.Join(empty, "none"), []string{filepath.Join(empty, "none") + " does not exist"}},
		{"mnist", empty, []string{empty, "no train-images-idx3-ubyte", "kintsugi data fetch mnist --data-dir " + empty}},
		{"fashion", half, []string{half, "no train-labels-idx1-ubyte", "kintsugi data fetch fashion"}},
		{"idx", empty, []string{empty, `"train"`, `"images"`}},
		{"idx", two, []string{"emnist-letters-Train-Images, train.images.old could each be the train images"}},
		{"mnist", fashion, []string{`train-labels-idx1-ubyte.gz is the file of data set "fashion"`}},
	} {
		_, err := Open(c.set, c.dir)
		if !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%s in %q: %v, want an error that wraps ErrUsage", c.set, c.dir, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s in %q: %v\nwant it to say %q", c.set, c.dir, err, want)
			}
		}
	}
}

func TestHalvesOfDifferentShapesAreRefused(t *testing.T) {
	dir := t.TempDir()
	writeSet(t, 1, dir, plainNames)
	write(t, encode(magicImages, make([]byte, 6*25), 6, 5, 5), dir, plainNames[2])
	_, err := Open("mnist", dir)
	if want := "have [1 5 5]: they are not of one set"; !errors.Is(err, kintsugi.ErrCorrupt) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v\nwant ErrCorrupt and %q", err, want)
	}
}

func TestListDescribesEachSetThatOpens(t *testing.T) {
	race.Skip(t)
	names := map[string]Info{}
	for _, info := range List() {
		names[info.Name] = info
		if info.Description == "" || info.Licence == "" {
			t.Errorf("%q lacks a description or a licence", info.Name)
		}
		if _, err := Open(info.Name, ""); (err == nil) != info.Builtin {
			t.Errorf("opening %q without a folder: %v, although builtin is %v", info.Name, err, info.Builtin)
		}
	}
	if len(names) != 16 || names["mnist"].Bytes != 11594722 || names["fashion"].Bytes != 30878645 {
		t.Errorf("the list is %+v", names)
	}
}

// If the published files are there, they have the counts, first labels and means that everyone else
// finds.
func TestPublishedSetsReadAsPublished(t *testing.T) {
	dir := os.Getenv("KINTSUGI_DATA")
	if dir == "" {
		t.Skip("set KINTSUGI_DATA to the folder that holds mnist and fashion-mnist (kintsugi data fetch)")
	}
	if testing.Short() {
		t.Skip("it reads all of both sets; run it without -short")
	}
	for _, c := range []struct {
		name                string
		trainMean, testMean float64
		train, test         [10]int
		first               string
	}{
		{
			"mnist", 0.13066, 0.13251,
			[10]int{5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949},
			[10]int{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}, "[5 0 4 1 9 2 1 3 1 4]",
		},
		{
			"fashion", 0.28604, 0.28685,
			[10]int{6000, 6000, 6000, 6000, 6000, 6000, 6000, 6000, 6000, 6000},
			[10]int{1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}, "[9 0 0 3 0 2 7 2 5 5]",
		},
	} {
		for _, place := range []string{dir, filepath.Join(dir, map[string]string{"mnist": "mnist", "fashion": "fashion-mnist"}[c.name])} {
			if err := Verify(c.name, place); err != nil {
				t.Error(err)
			}
		}
		s, err := openImages(c.name, dir)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.Train.N != 60000 || s.Test.N != 10000 || s.Train.Shape() != [3]int{1, 28, 28} || s.Test.Classes != 10 {
			t.Errorf("%s: %d and %d images of %v in %d classes", c.name, s.Train.N, s.Test.N, s.Train.Shape(), s.Test.Classes)
		}
		testMean, _ := moments(s.Test.Pixels)
		if math.Abs(float64(s.Mean)-c.trainMean) > 6e-6 || math.Abs(float64(testMean)-c.testMean) > 6e-6 {
			t.Errorf("%s: means %v and %v, want %v and %v", c.name, s.Mean, testMean, c.trainMean, c.testMean)
		}
		var train, test [10]int
		for _, l := range s.Train.Labels {
			train[l]++
		}
		for _, l := range s.Test.Labels {
			test[l]++
		}
		if train != c.train || test != c.test {
			t.Errorf("%s: classes %v and %v, want %v and %v", c.name, train, test, c.train, c.test)
		}
		if got := fmt.Sprint(s.Train.Labels[:10]); got != c.first {
			t.Errorf("%s: first labels %s, want %s", c.name, got, c.first)
		}
	}
}
