package data

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// The IDX format: two zero bytes, the type of the values, the number of dimensions, one big-endian
// uint32 for each dimension, and the values in row-major order.
const (
	magicLabels = 0x00000801 // 2049: [N] bytes
	magicImages = 0x00000803 // 2051: [N, Height, Width] bytes
	magicColour = 0x00000804 // 2052: [N, Channels, Height, Width] bytes
)

// maxInflation limits how much larger than the compressed file its content can be: deflate needs at
// least two bits for 258 bytes. A header that claims more is wrong, and memory must not be
// allocated for it.
const maxInflation = 1032

// array is the content of an IDX file.
type array struct {
	dims   []int
	values []byte
}

// ReadIDX reads a file of images, [N, Height, Width] or [N, Channels, Height, Width], and the file
// of their labels. Each may be compressed with gzip, whatever its name. Classes is the largest
// label + 1.
//
// If a file could be read but its content is wrong, the error wraps [kintsugi.ErrCorrupt]. Memory
// grows with the actual content of the files, not with the sizes that their headers claim.
func ReadIDX(images, labels string) (*Images, error) {
	pixels, err := readArray(images, magicImages, magicColour)
	if err != nil {
		return nil, err
	}
	classes, err := readArray(labels, magicLabels)
	if err != nil {
		return nil, err
	}
	im := &Images{N: pixels.dims[0], Channels: 1, Pixels: pixels.values, Labels: classes.values}
	shape := pixels.dims[1:]
	if len(shape) == 3 {
		im.Channels, shape = shape[0], shape[1:]
	}
	im.Height, im.Width = shape[0], shape[1]
	if im.N != classes.dims[0] {
		return nil, fmt.Errorf("%w: %s holds %d images but %s holds %d labels: they are not a pair",
			kintsugi.ErrCorrupt, images, im.N, labels, classes.dims[0])
	}
	im.Classes = int(slices.Max(im.Labels)) + 1
	return im, nil
}

// readArray reads one IDX file whose magic number is one of those given.
func readArray(path string, magics ...uint32) (a array, err error) {
	f, info, err := openFile(path)
	if err != nil {
		return array{}, err
	}
	defer f.Close()
	a, err = decode(f, info.Size(), magics...)
	if err != nil {
		return array{}, fmt.Errorf("read %s: %w", path, err)
	}
	return a, nil
}

// openFile opens a data file. It refuses folders and pipes, which could block for ever.
func openFile(path string) (*os.File, os.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("open data file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%w: %s is not a file; name the folder that holds the files of the data set", kintsugi.ErrUsage, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("open data file: %w", err)
	}
	return f, info, nil
}

// decode reads one IDX array, plain or compressed, from the size bytes of r.
func decode(r io.Reader, size int64, magics ...uint32) (array, error) {
	b := bufio.NewReader(r)
	start, err := b.Peek(2)
	if len(start) == 0 && err == io.EOF {
		return array{}, corrupt("the file is empty; copy or fetch it again")
	}
	if err != nil {
		return array{}, short(err, "it ends within the header")
	}
	switch {
	case start[0] == 0x1f && start[1] == 0x8b:
		z, err := gzip.NewReader(b)
		if err != nil {
			return array{}, short(err, "it ends within the gzip header")
		}
		return decodePlain(z, size, min(size, math.MaxInt64/maxInflation)*maxInflation, magics)
	case start[0] == 0 && start[1] == 0:
		return decodePlain(b, size, size, magics)
	default:
		return array{}, corrupt("it begins with the bytes %x, which is neither IDX (0000) nor gzip (1f8b); "+
			"if it is a web page that was saved in place of the data, fetch it again", start)
	}
}

// decodePlain reads one IDX array from r, the content of a file of size bytes. The content is at
// most limit bytes.
func decodePlain(r io.Reader, size, limit int64, magics []uint32) (array, error) {
	a, total, err := decodeHeader(r, magics)
	if err != nil {
		return array{}, err
	}
	if most := limit - int64(4+4*len(a.dims)); total > most {
		return array{}, corrupt("the header declares the shape %v, but the file of %d bytes can hold only %d bytes "+
			"of it: it is truncated; copy or fetch it again", a.dims, size, max(0, most))
	}
	// Do not trust the header further than the content: memory doubles as bytes arrive.
	a.values = make([]byte, min(total, 16*size))
	for done := 0; ; {
		n, err := io.ReadFull(r, a.values[done:])
		if done += n; err != nil {
			return array{}, short(err, "the header declares the shape %v, %d bytes, but it ends after %d of them",
				a.dims, total, done)
		}
		if int64(done) == total {
			break
		}
		a.values = append(a.values, make([]byte, min(total-int64(done), int64(done)))...)
	}
	// Reading to the end also makes gzip verify its checksum.
	switch n, err := io.ReadFull(r, make([]byte, 1)); {
	case n > 0:
		return array{}, corrupt("bytes follow the %d that the header declares with the shape %v; "+
			"the header and the content do not belong together", total, a.dims)
	case err != io.EOF:
		return array{}, short(err, "it ends before the checksum")
	}
	return a, nil
}

// decodeHeader reads the magic number and the dimensions. total is the number of values, or the
// largest int64 if there are more.
func decodeHeader(r io.Reader, magics []uint32) (a array, total int64, err error) {
	word := func() uint32 {
		var b [4]byte
		if err == nil {
			_, err = io.ReadFull(r, b[:])
		}
		return binary.BigEndian.Uint32(b[:])
	}
	magic := word()
	if err == nil && !slices.Contains(magics, magic) {
		return array{}, 0, wrongMagic(magic, magics)
	}
	total = 1
	for range magic & 0xff {
		d := int64(word())
		a.dims = append(a.dims, int(d))
		if d > 0 && total > math.MaxInt64/d {
			total = math.MaxInt64
		} else {
			total *= d
		}
	}
	if err != nil {
		return array{}, 0, short(err, "it ends within the header")
	}
	if total == 0 {
		return array{}, 0, corrupt("the header declares the shape %v: the file holds no data", a.dims)
	}
	return a, total, nil
}

func wrongMagic(magic uint32, magics []uint32) error {
	found := fmt.Sprintf("the magic number is %d (%#08x)", magic, magic)
	switch {
	case magic == magicLabels:
		return corrupt("%s: these are labels where images are expected (magic number %d)", found, magics[0])
	case magic == magicImages || magic == magicColour:
		return corrupt("%s: these are images where labels are expected (magic number %d)", found, magics[0])
	case magic>>8 != magicLabels>>8 && magic>>16 == 0 && magic&0xff < 8:
		return corrupt("%s: the values are not unsigned bytes; convert them", found)
	}
	return corrupt("%s, expected one of %d: it is not an IDX file of the kind expected here", found, magics)
}

// corrupt returns an error about bytes with wrong contents.
func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", kintsugi.ErrCorrupt, fmt.Sprintf(format, args...))
}

// short explains why reading stopped before the end: the bytes ran out (format says where), they
// are damaged, or the file could not be read, which says nothing about its content.
func short(err error, format string, args ...any) error {
	var damage flate.CorruptInputError
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return corrupt("%s: it is truncated; copy or fetch it again", fmt.Sprintf(format, args...))
	case errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) || errors.As(err, &damage):
		return corrupt("the compressed bytes are damaged (%v); copy or fetch it again", err)
	}
	return err
}
