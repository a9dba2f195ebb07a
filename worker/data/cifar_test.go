package data

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// records returns images in the binary format of CIFAR-10.
func records(im *Images) []byte {
	var b []byte
	for i := range im.N {
		b = append(append(b, im.Labels[i]), im.Pixels[i*cifarPixels:(i+1)*cifarPixels]...)
	}
	return b
}

// entry is a file of an archive.
type entry struct {
	name    string
	content []byte
}

func tarball(entries ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		w.WriteHeader(&tar.Header{Name: e.name, Size: int64(len(e.content)), Mode: 0o644, Typeflag: tar.TypeReg})
		w.Write(e.content)
	}
	w.Close()
	return b.Bytes()
}

// photograph returns a JPEG image of a single colour, which the coding hardly changes.
func photograph(c color.RGBA, width, height int) []byte {
	im := image.NewRGBA(image.Rect(0, 0, width, height))
	for i := range width * height {
		im.SetRGBA(i%width, i/width, c)
	}
	var b bytes.Buffer
	jpeg.Encode(&b, im, &jpeg.Options{Quality: 100})
	return b.Bytes()
}

func cifarImages(rng *rand.Rand, n int) *Images {
	im := randomImages(rng, n, 3, 32, 32, min(n, 10))
	im.Classes = 10
	return im
}

func sameImages(t *testing.T, what string, got, want *Images) {
	t.Helper()
	if got.N != want.N || got.Shape() != [3]int{3, 32, 32} || got.Classes != 10 || !slices.Equal(got.Labels, want.Labels) || !bytes.Equal(got.Pixels, want.Pixels) {
		t.Errorf("%s: %d images of %v in %d classes, want %d, or they have other bytes", what, got.N, got.Shape(), got.Classes, want.N)
	}
}

// The archive as published, and its files, compressed or not, give the same set, in the order of
// the files' names.
func TestCIFARIsFoundHoweverItIsKept(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	train, test := cifarImages(rng, 12), cifarImages(rng, 3)
	first, second := train.split(7)
	for name, files := range map[string][]entry{
		"archive": {{"cifar-10-binary.tar.gz", zip(tarball(
			entry{"cifar-10-batches-bin/batches.meta.txt", []byte("airplane\n")}, entry{"cifar-10-batches-bin/data_batch_1.bin", records(first)},
			entry{"cifar-10-batches-bin/data_batch_2.bin", records(second)}, entry{"cifar-10-batches-bin/test_batch.bin", records(test)},
		))}},
		"a folder with test in a word": {{"cifar-10-binary.tar.gz", zip(tarball(entry{"latest/data_batch_1.bin", records(train)}, entry{"latest/test_batch.bin", records(test)}))}},
		"plain files":                  {{"data_batch_2.bin", records(second)}, {"data_batch_1.bin", records(first)}, {"test_batch.bin", records(test)}, {"readme.html", nil}},
		"compressed files":             {{"a-train.bin.gz", zip(records(train))}, {"a-test.bin.gz", zip(records(test))}},
		"its folder":                   {{"cifar10/data_batch_1.bin", records(train)}, {"cifar10/test_batch.bin", records(test)}, {"data_batch_1.bin", records(test)}},
	} {
		dir := t.TempDir()
		for _, f := range files {
			write(t, f.content, dir, f.name)
		}
		s, err := openImages("cifar10", dir)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sameImages(t, name+", training", s.Train, train)
		sameImages(t, name+", test", s.Test, test)
	}
}

// If a part of the set has no test files, its last fifth is used for testing.
func TestAPartOfCIFARIsSplit(t *testing.T) {
	dir := t.TempDir()
	all := cifarImages(rand.New(rand.NewPCG(6, 6)), 11)
	write(t, zip(records(all)), dir, "cifar10-train-first11.bin.gz")
	s, err := openImages("cifar10", dir)
	if err != nil {
		t.Fatal(err)
	}
	train, test := all.split(9)
	sameImages(t, "training", s.Train, train)
	sameImages(t, "test", s.Test, test)
}

// JPEG files are read in the order of their numbers, whatever their order in the archive: the first
// of each class come first.
func TestPhotographsAreReadInTheOrderOfTheirNumbers(t *testing.T) {
	var files []entry
	for _, half := range []string{"test", "train"} {
		for c, class := range cifarClasses {
			for n := range 3 {
				files = append(files, entry{fmt.Sprintf("%s/%s/%04d.jpg", half, class, n), photograph(color.RGBA{uint8(20 * c), uint8(80 * n), 99, 255}, 32, 32)})
			}
		}
	}
	rand.New(rand.NewPCG(7, 7)).Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	dir := t.TempDir()
	write(t, zip(tarball(files...)), dir, "cifar10-jpeg.tar.gz")
	s, err := openImages("cifar10-jpeg", dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, half := range []*Images{s.Train, s.Test} {
		if half.N != 30 || half.Shape() != [3]int{3, 32, 32} || half.Classes != 10 {
			t.Fatalf("%d images of %v in %d classes", half.N, half.Shape(), half.Classes)
		}
		for i, label := range half.Labels {
			c, n := i%10, i/10
			middle := i*cifarPixels + 16*32 + 16
			for plane, want := range []int{20 * c, 80 * n, 99} {
				if got := int(half.Pixels[middle+plane*1024]); int(label) != c || got < want-3 || got > want+3 {
					t.Fatalf("image %d: class %d, plane %d is %d; want class %d, %d", i, label, plane, got, c, want)
				}
			}
		}
	}
}

func TestDamagedCIFARIsRefused(t *testing.T) {
	good := records(cifarImages(rand.New(rand.NewPCG(8, 8)), 10))
	wrong := slices.Clone(good)
	wrong[3*cifarRecord] = 10
	damaged := zip(good)
	damaged[len(damaged)-6] ^= 1
	archive := tarball(entry{"x/data_batch_1.bin", good})
	spoilt := slices.Clone(archive)
	spoilt[20] ^= 1
	for _, c := range []struct {
		name, set, file string
		content         []byte
		want            string
	}{
		{"empty", "cifar10", "data_batch_1.bin", nil, "it holds no image"},
		{"cut", "cifar10", "data_batch_1.bin", good[:len(good)-1], "it ends within image 9"},
		{"a class too large", "cifar10", "data_batch_1.bin", wrong, "image 3 has the class 10"},
		{"gzip, wrong checksum", "cifar10", "data_batch_1.bin.gz", damaged, "compressed bytes are damaged"},
		{"gzip, cut in its header", "cifar10", "data_batch_1.bin.gz", damaged[:4], "within the gzip header"},
		{"one image", "cifar10", "data_batch_1.bin", good[:cifarRecord], "too few images"},
		{"archive, cut", "cifar10", "cifar-10-binary.tar.gz", zip(archive[:2000]), "truncated"},
		{"archive, spoilt", "cifar10", "cifar-10-binary.tar.gz", zip(spoilt), "not a tar archive"},
		{"archive of nothing", "cifar10", "cifar-10-binary.tar.gz", zip(tarball(entry{"readme.html", nil})), "no image to train on"},
		{"archive, trailing damage", "cifar10", "cifar-10-binary.tar.gz", zip(archive)[:len(zip(archive))-4], "truncated"},
		{"a web page", "cifar10", "cifar-10-binary.tar.gz", []byte(strings.Repeat("<html>", 200)), "not a tar archive"},
		{"no class", "cifar10-jpeg", "cifar10-jpeg.tar.gz", zip(tarball(entry{"train/zebra/1.jpg", photograph(color.RGBA{}, 32, 32)})), `"zebra" is no class`},
		{"another size", "cifar10-jpeg", "cifar10-jpeg.tar.gz", zip(tarball(entry{"train/cat/1.jpg", photograph(color.RGBA{}, 33, 32)})), "33×32"},
		{"no JPEG", "cifar10-jpeg", "cifar10-jpeg.tar.gz", zip(tarball(entry{"train/cat/1.jpg", []byte("GIF89a")})), "no JPEG image"},
	} {
		dir := t.TempDir()
		write(t, c.content, dir, c.file)
		_, err := Open(c.set, dir)
		if !errors.Is(err, kintsugi.ErrCorrupt) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v\nwant an error that wraps ErrCorrupt, names the place and says %q", c.name, err, c.want)
		}
	}
	for set, want := range map[string]string{"cifar10": "kintsugi data fetch cifar10", "cifar10-jpeg": "cifar10-jpeg.tar.gz"} {
		if _, err := Open(set, t.TempDir()); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s in an empty folder: %v", set, err)
		}
	}
}

// Whatever the bytes are, reading them ends with an error or with as many labels and pixels as
// images, and takes memory in proportion to what was read.
func FuzzCIFAR(f *testing.F) {
	one := records(cifarImages(rand.New(rand.NewPCG(9, 9)), 1))
	f.Add(one)
	f.Add(one[:100])
	f.Add(zip(one))
	f.Add(tarball(entry{"train/cat/1.jpg", photograph(color.RGBA{9, 99, 199, 255}, 32, 32)}))
	f.Add(zip(tarball(entry{"a/test_batch.bin", one})))
	f.Add(tarball(entry{"train/cat/1.jpg", photograph(color.RGBA{}, 2000, 1)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		check := func(im *Images, err error) {
			if err != nil && !errors.Is(err, kintsugi.ErrCorrupt) {
				t.Fatalf("bytes in memory gave an error that is not about them: %v", err)
			}
			if err == nil && (len(im.Labels) != im.N || len(im.Pixels) != im.N*cifarPixels || (im.N > 0 && slices.Max(im.Labels) > 9)) {
				t.Fatalf("%d images with %d labels and %d pixels", im.N, len(im.Labels), len(im.Pixels))
			}
		}
		im := newCIFAR()
		check(im, plain(bytes.NewReader(b), im.records))
		var train, test *Images
		err := plain(bytes.NewReader(b), func(r io.Reader) (err error) {
			train, test, err = cifarArchive(r)
			return err
		})
		if train != nil {
			check(train, err)
			check(test, err)
		}
		runtime.ReadMemStats(&after)
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(64<<20+4*maxInflation*len(b)); got > most {
			t.Fatalf("%d bytes allocated for %d bytes", got, len(b))
		}
	})
}

// If the published images are there, they have the labels and pixels that everyone else finds.
func TestPublishedPhotographsReadAsPublished(t *testing.T) {
	dir := os.Getenv("KINTSUGI_DATA")
	if _, err := os.Stat(filepath.Join(dir, "cifar10")); dir == "" || err != nil {
		t.Skip("set KINTSUGI_DATA to the folder that holds cifar10 (kintsugi data fetch cifar10)")
	}
	s, err := openImages("cifar10", dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.Train.Labels[:10], s.Train.Pixels[:4]); got != "[6 9 9 4 1 1 2 7 8 3] [59 43 50 68]" {
		t.Errorf("the first labels and pixels are %s", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "cifar10", "cifar10-jpeg.tar.gz")); err != nil || testing.Short() {
		t.Skip("not the archive of JPEG files, which takes seconds to read")
	}
	j, err := openImages("cifar10-jpeg", dir)
	if err != nil {
		t.Fatal(err)
	}
	if j.Train.N != 50000 || j.Test.N != 10000 || fmt.Sprint(j.Train.Labels[:12]) != "[0 1 2 3 4 5 6 7 8 9 0 1]" {
		t.Errorf("%d and %d images, the first of classes %v", j.Train.N, j.Test.N, j.Train.Labels[:12])
	}
	// Within a class the order is that of the binary version: the first frog is the first image, a
	// little blurred.
	difference := 0
	for i, p := range s.Train.Pixels[:cifarPixels] {
		difference += max(int(p)-int(j.Train.Pixels[6*cifarPixels+i]), int(j.Train.Pixels[6*cifarPixels+i])-int(p))
	}
	if mean := float64(difference) / cifarPixels; mean > 15 {
		t.Errorf("the first frog differs by %.1f a pixel", mean)
	}
}
