package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// Text formats with one record per line. The sizes that a line may claim are limited, so that a few
// bytes cannot allocate the memory of many.
const (
	maxLine   = 16 << 20 // bytes of a line
	maxID     = 1 << 24  // users, items and words are below: float32 holds them exactly
	maxCount  = 1 << 16  // of one word in one document
	maxTokens = 1 << 26  // of a corpus
	maxDense  = 1 << 27  // values of a set of vectors
)

// readLines calls line for each line of a file, which may be compressed with gzip. It adds the path
// and the number of the line, counted from 1, to errors of line.
func readLines(path string, line func(text []byte) error) error {
	f, _, err := openFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := eachLine(f, line); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func eachLine(r io.Reader, line func(text []byte) error) error {
	b := bufio.NewReader(r)
	if start, _ := b.Peek(2); bytes.Equal(start, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(b)
		if err != nil {
			return short(err, "it ends within the gzip header")
		}
		r = z
	} else {
		r = b
	}
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	n := 0
	for s.Scan() {
		text := bytes.TrimRight(s.Bytes(), "\r")
		if n++; n == 1 {
			text = bytes.TrimPrefix(text, []byte("\ufeff")) // a byte order mark, which some programs write at the beginning
		}
		if err := line(text); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	switch err := s.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return corrupt("line %d is longer than %d bytes", n+1, maxLine)
	case err != nil:
		return short(err, "it ends after %d lines", n)
	case n == 0:
		return corrupt("the file is empty; copy or fetch it again")
	}
	return nil
}

// number parses text as a whole number, which must be below limit.
func number(text []byte, limit int) (int, bool) {
	n := 0
	if len(text) == 0 || len(text) > 9 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, n < limit
}

// within returns the paths of the named files in dir, or in the set's own folder in dir. If one is
// missing, the error says which.
func (s *source) within(dir string, names ...string) ([]string, error) {
	place, have, err := s.place(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, name := range names {
		if !slices.Contains(have, name) {
			return nil, fmt.Errorf("%w: %s: there is no %s%s", kintsugi.ErrUsage, place, name, s.advice(dir))
		}
		paths = append(paths, filepath.Join(place, name))
	}
	return paths, nil
}
