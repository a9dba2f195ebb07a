package data

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// The binary format of CIFAR-10: records without a header. A record is the class, and then a red, a
// green and a blue plane of 32 rows.
const (
	cifarSide   = 32
	cifarPixels = 3 * cifarSide * cifarSide
	cifarRecord = 1 + cifarPixels
	cifarMost   = 1 << 20 // limit on the images of one file (3 GiB), so that a wrong header cannot exhaust memory
)

// cifarClasses are the publisher's names of the classes, by label.
var cifarClasses = []string{"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}

// newCIFAR returns an empty list of images with the shape of CIFAR-10.
func newCIFAR() *Images {
	return &Images{Channels: 3, Height: cifarSide, Width: cifarSide, Classes: len(cifarClasses)}
}

// records appends the records of r to im.
func (im *Images) records(r io.Reader) error {
	in := bufio.NewReaderSize(r, 1<<16)
	var record [cifarRecord]byte
	for n := 0; ; n++ {
		switch _, err := io.ReadFull(in, record[:]); {
		case err == io.EOF && n > 0:
			return nil
		case err == io.EOF:
			return corrupt("it holds no image; copy or fetch it again")
		case err != nil:
			return short(err, "it ends within image %d, of %d bytes", n, cifarRecord)
		case int(record[0]) >= im.Classes:
			return corrupt("image %d has the class %d, of %d: it is not a file of CIFAR-10's binary version", n, record[0], im.Classes)
		case im.N == cifarMost:
			return corrupt("it goes on after %d images", im.N)
		}
		im.append(record[0], record[1:])
	}
}

func (im *Images) append(label uint8, pixels []byte) {
	im.N++
	im.Labels = append(im.Labels, label)
	im.Pixels = append(im.Pixels, pixels...)
}

// forTesting matches the names of files for the test half: a word in the name begins with "test",
// as in test_batch.bin. A folder named latest does not match.
var forTesting = regexp.MustCompile(`(?i)(^|[^a-z])test`)

// cifarArchive reads a tar archive of batches in the binary format, or of JPEG files named
// CLASS/NUMBER.jpg. A file belongs to the test half if a word in its path begins with "test". Other
// files in the archive, such as a readme, are ignored.
func cifarArchive(r io.Reader) (train, test *Images, err error) {
	photographs := [2]photographs{{im: newCIFAR()}, {im: newCIFAR()}}
	err = eachFile(r, func(name string, r io.Reader) error {
		half := 0
		if forTesting.MatchString(name) {
			half = 1
		}
		switch path.Ext(name) {
		case ".bin":
			return photographs[half].im.records(r)
		case ".jpg", ".jpeg":
			return photographs[half].read(name, r)
		}
		return nil
	})
	return photographs[0].sorted(), photographs[1].sorted(), err
}

// eachFile calls f with each regular file of a tar archive.
func eachFile(r io.Reader, f func(name string, r io.Reader) error) error {
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if errors.Is(err, tar.ErrHeader) {
			return corrupt("it is not a tar archive, or one that is damaged")
		}
		if err != nil {
			return short(err, "it ends within the archive")
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := f(h.Name, in); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

// photographs holds images and the names of their files.
type photographs struct {
	im    *Images
	names []string
}

// read appends a JPEG image. The name of its folder is its class.
func (p *photographs) read(name string, r io.Reader) error {
	class := path.Base(path.Dir(name))
	label := slices.Index(cifarClasses, class)
	if label < 0 {
		return corrupt("%q is no class of CIFAR-10", class)
	}
	if p.im.N == cifarMost {
		return corrupt("there are more than %d images", cifarMost)
	}
	file, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return short(err, "it ends within the image")
	}
	pixels, err := decodeJPEG(file)
	if err != nil {
		return err
	}
	p.im.append(uint8(label), pixels[:])
	p.names = append(p.names, path.Base(name))
	return nil
}

// sorted returns the images in the order of their numbers, and those with the same number by class.
// In the archive, all images of a class are in a row, but the first images of a set should be of
// every class.
func (p *photographs) sorted() *Images {
	if len(p.names) == 0 || len(p.names) != p.im.N {
		return p.im
	}
	order := make([]int, p.im.N)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(p.names[a], p.names[b]), cmp.Compare(p.im.Labels[a], p.im.Labels[b]))
	})
	im := newCIFAR()
	im.Pixels, im.Labels = make([]byte, 0, len(p.im.Pixels)), make([]uint8, 0, p.im.N)
	for _, i := range order {
		im.append(p.im.Labels[i], p.im.Pixels[i*cifarPixels:][:cifarPixels])
	}
	return im
}

// decodeJPEG returns the pixels of an image: planes of red, green and blue.
func decodeJPEG(file []byte) (pixels [cifarPixels]byte, err error) {
	// Check the size first: no memory must be allocated for an image that claims to be huge.
	size, err := jpeg.DecodeConfig(bytes.NewReader(file))
	if err == nil && (size.Width != cifarSide || size.Height != cifarSide) {
		return pixels, corrupt("the image has %d×%d pixels, one of CIFAR-10 has %d×%d", size.Width, size.Height, cifarSide, cifarSide)
	}
	var picture image.Image
	if err == nil {
		picture, err = jpeg.Decode(bytes.NewReader(file))
	}
	if err != nil {
		return pixels, corrupt("it is no JPEG image: %v", err)
	}
	at := picture.Bounds().Min
	for y := range cifarSide {
		for x := range cifarSide {
			r, g, b, _ := picture.At(at.X+x, at.Y+y).RGBA()
			i := y*cifarSide + x
			pixels[i], pixels[i+cifarSide*cifarSide], pixels[i+2*cifarSide*cifarSide] = byte(r>>8), byte(g>>8), byte(b>>8)
		}
	}
	return pixels, nil
}

// openCIFAR reads CIFAR-10 from dir or from the set's own folder in dir: the archive as published,
// or the files in it, compressed or not. A part of the set may have no test files; then the last
// fifth of the images is the test half.
func openCIFAR(s *source, dir string) (*ImageSet, error) {
	place, names, err := s.place(dir)
	if err != nil {
		return nil, err
	}
	var train, test *Images
	switch archive := s.archive; {
	case slices.Contains(names, archive):
		train, test, err = readArchive(filepath.Join(place, archive))
	default:
		train, test, err = s.batches(place, names, dir)
	}
	if err != nil {
		return nil, err
	}
	if train.N == 0 {
		return nil, corrupt("%s holds no image to train on", place)
	}
	if test.N == 0 {
		train, test = train.split(train.N - train.N/5)
	}
	if test.N == 0 {
		return nil, corrupt("%s holds too few images, %d, to keep some for testing", place, train.N)
	}
	return newImageSet(s.info.Name, train, test), nil
}

// batches reads all files of the binary version in a folder, in the order of their names.
func (s *source) batches(place string, names []string, dir string) (train, test *Images, err error) {
	train, test = newCIFAR(), newCIFAR()
	found := false
	for _, name := range slices.Sorted(slices.Values(names)) {
		if len(s.files) == 0 || !(strings.HasSuffix(name, ".bin") || strings.HasSuffix(name, ".bin.gz")) {
			continue
		}
		half := train
		if forTesting.MatchString(name) {
			half = test
		}
		found = true
		file := filepath.Join(place, name)
		if err := readFile(file, half.records); err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", file, err)
		}
	}
	if !found {
		return nil, nil, fmt.Errorf("%w: %s: there is no %s%s", kintsugi.ErrUsage, place, s.archive, s.advice(dir))
	}
	return train, test, nil
}

func readArchive(file string) (train, test *Images, err error) {
	err = readFile(file, func(r io.Reader) error {
		train, test, err = cifarArchive(r)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", file, err)
	}
	return train, test, nil
}

// readFile calls f with the content of a file, decompressed if it is compressed with gzip.
func readFile(file string, f func(io.Reader) error) error {
	r, _, err := openFile(file)
	if err != nil {
		return err
	}
	defer r.Close()
	return plain(r, f)
}

// plain calls f with the bytes of r, decompressed if they are compressed with gzip.
func plain(r io.Reader, f func(io.Reader) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	if start, _ := in.Peek(2); len(start) < 2 || start[0] != 0x1f || start[1] != 0x8b {
		return f(in)
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return short(err, "it ends within the gzip header")
	}
	if err := f(z); err != nil {
		return err
	}
	// An archive may end before its file does. Reading the rest makes gzip verify the checksum.
	if _, err := io.Copy(io.Discard, z); err != nil {
		return short(err, "it ends before the checksum")
	}
	return nil
}
