package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// encode returns an IDX file, whether or not the dimensions match the values.
func encode(magic uint32, values []byte, dims ...int) []byte {
	b := binary.BigEndian.AppendUint32(nil, magic)
	for _, d := range dims {
		b = binary.BigEndian.AppendUint32(b, uint32(d))
	}
	return append(b, values...)
}

func zip(b []byte) []byte {
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	w.Write(b)
	w.Close()
	return buffer.Bytes()
}

func write(t *testing.T, b []byte, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return name
}

// Images of any shape, plain or compressed, are read as they were written.
func TestIDXFilesRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		n, c, h, w := 1+rng.IntN(30), 1+rng.IntN(3), 1+rng.IntN(20), 1+rng.IntN(20)
		want := randomImages(rng, n, c, h, w, 1+rng.IntN(min(n, 256)))
		images, labels := encode(magicColour, want.Pixels, n, c, h, w), encode(magicLabels, want.Labels, n)
		if c == 1 && rng.IntN(2) == 0 {
			images = encode(magicImages, want.Pixels, n, h, w)
		}
		if rng.IntN(2) == 0 {
			images = zip(images)
		}
		if rng.IntN(2) == 0 {
			labels = zip(labels)
		}
		dir := t.TempDir()
		got, err := ReadIDX(write(t, images, dir, "i"), write(t, labels, dir, "l"))
		if err != nil {
			t.Fatal(err)
		}
		if got.N != n || got.Shape() != want.Shape() || got.Classes != want.Classes ||
			!slices.Equal(got.Pixels, want.Pixels) || !slices.Equal(got.Labels, want.Labels) {
			t.Fatalf("%d images of %v in %d classes came back as %d of %v in %d, or with other bytes",
				n, want.Shape(), want.Classes, got.N, got.Shape(), got.Classes)
		}
	}
}

// Each kind of damage is refused as corrupt, with a message that tells it from the others.
func TestDamagedIDXFilesAreRefused(t *testing.T) {
	good := encode(magicImages, make([]byte, 24), 2, 3, 4)
	zipped := zip(good)
	flipped := slices.Clone(zipped)
	flipped[len(flipped)-6] ^= 1
	for _, c := range []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "the file is empty"},
		{"one byte", good[:1], "ends within the header"},
		{"half a magic number", good[:3], "ends within the header"},
		{"half a header", good[:10], "ends within the header"},
		{"no pixels", good[:16], "shape [2 3 4], but the file of 16 bytes can hold only 0 bytes"},
		{"one pixel short", good[:len(good)-1], "can hold only 23 bytes of it: it is truncated"},
		{"one byte too many", append(slices.Clone(good), 0), "bytes follow the 24"},
		{"labels", encode(magicLabels, []byte{1, 2}, 2), "these are labels where images are expected"},
		{"floats", encode(0x0d03, make([]byte, 96), 2, 3, 4), "the values are not unsigned bytes"},
		{"other format", encode(0x0000ff63, nil), "not an IDX file"},
		{"no images", encode(magicImages, nil, 0, 28, 28), "shape [0 28 28]: the file holds no data"},
		{"a lie that overflows", encode(magicColour, nil, 1<<31, 1<<31, 1<<31, 1<<31), "can hold only"},
		{"web page", []byte("<!DOCTYPE html>"), "begins with the bytes 3c21"},
		{"gzip, cut in its header", zipped[:5], "ends within the gzip header"},
		{"gzip, cut", zipped[:len(zipped)-12], "it is truncated"},
		{"gzip, checksum cut", zipped[:len(zipped)-4], "it is truncated"},
		{"gzip, wrong checksum", flipped, "compressed bytes are damaged"},
		{"gzip, garbage after", append(slices.Clone(zipped), "hello, world"...), "compressed bytes are damaged"},
		{"gzip, garbage inside", append(slices.Clone(zipped[:10]), "hello, world"...), "compressed bytes are damaged"},
		{"gzip, nothing inside", zip(nil), "ends within the header"},
		{"gzip, one pixel short", zip(good[:len(good)-1]), "ends after 23 of them"},
		{"gzip, one byte too many", zip(append(slices.Clone(good), 0)), "bytes follow the 24"},
		{"gzip, a lie", zip(encode(magicImages, nil, 60000, 28000, 28000)), "can hold only"},
	} {
		path := write(t, c.file, t.TempDir(), "images")
		_, err := ReadIDX(path, path)
		if !errors.Is(err, kintsugi.ErrCorrupt) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v\nwant an error about %s that wraps ErrCorrupt and says %q", c.name, err, path, c.want)
		}
	}
}

func TestImagesAndLabelsHaveToBeAPair(t *testing.T) {
	dir := t.TempDir()
	images := write(t, encode(magicImages, make([]byte, 24), 2, 3, 4), dir, "images")
	labels := write(t, encode(magicLabels, make([]byte, 3), 3), dir, "labels")
	_, err := ReadIDX(images, labels)
	if want := "images holds 2 images but"; !errors.Is(err, kintsugi.ErrCorrupt) || !strings.Contains(err.Error(), want) {
		t.Errorf("2 images and 3 labels: %v", err)
	}
	_, err = ReadIDX(images, images)
	if want := "these are images where labels are expected (magic number 2049)"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("images for labels: %v", err)
	}
	if _, err = ReadIDX(filepath.Join(dir, "none"), labels); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err = ReadIDX(dir, labels); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("a folder for a file: %v", err)
	}
}

// A header that promises much makes the reader allocate little.
func TestMemoryFollowsTheBytesNotTheHeader(t *testing.T) {
	lie := zip(encode(magicImages, make([]byte, 10<<10), 1000, 1000, 10)) // ten megabytes according to the header, of which ten kilobytes exist
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := decode(bytes.NewReader(lie), 20<<10, magicImages) // the size of a file that could contain them
	runtime.ReadMemStats(&after)
	if want := "it ends after 10240 of them"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want an error that says %q", err, want)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 2<<20 {
		t.Errorf("%d bytes allocated for a file of 20 KiB", got)
	}
}

// Whatever the bytes are, the reader returns an error or an array whose size matches its shape.
func FuzzIDX(f *testing.F) {
	good := encode(magicImages, make([]byte, 24), 2, 3, 4)
	f.Add(good)
	f.Add(zip(good))
	f.Add(zip(good)[:20])
	f.Add(encode(magicColour, make([]byte, 6), 1, 3, 1, 2))
	f.Add(encode(magicLabels, []byte{1, 2, 3}, 3))
	f.Add(encode(magicImages, nil, 1<<31, 1<<31, 1<<31))
	f.Add(zip(encode(magicLabels, nil, 1<<30)))
	f.Add([]byte("<html>"))
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decode(bytes.NewReader(b), int64(len(b)), magicImages, magicColour, magicLabels)
		if err != nil {
			if !errors.Is(err, kintsugi.ErrCorrupt) {
				t.Fatalf("bytes in memory gave an error that is not about them: %v", err)
			}
			return
		}
		size := 1
		for _, d := range a.dims {
			size *= d
		}
		if len(a.dims) == 0 || size == 0 || size != len(a.values) {
			t.Fatalf("%d values of shape %v", len(a.values), a.dims)
		}
		if b[0] == 0 && !bytes.Equal(b, encode(binary.BigEndian.Uint32(b), a.values, a.dims...)) {
			t.Fatal("a plain file does not encode to itself")
		}
	})
}
