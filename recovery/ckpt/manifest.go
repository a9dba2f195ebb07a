package ckpt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"

	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// maxManifest bounds the bytes of a manifest that are read into memory: a line for each of two
// million chunks.
const maxManifest = 256 << 20

// Sum is a CRC32C, written as eight hexadecimal digits.
type Sum uint32

// MarshalText implements encoding.TextMarshaler.
func (s Sum) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%08x", uint32(s)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Sum) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 16, 32)
	*s = Sum(v)
	return err
}

// Fingerprint is a kintsugi.Layout.Fingerprint, written as sixteen hexadecimal digits: a JSON
// number would lose bits in most readers.
type Fingerprint uint64

// MarshalText implements encoding.TextMarshaler.
func (f Fingerprint) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(f)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *Fingerprint) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 16, 64)
	*f = Fingerprint(v)
	return err
}

// jsonLines writes a JSON object with one line per field and one per element of a list, so that
// manifests can be read, compared and searched line by line.
type jsonLines struct {
	b   bytes.Buffer
	err error
}

func (j *jsonLines) value(v any) {
	text, err := json.Marshal(v)
	j.err = errors.Join(j.err, err)
	j.b.Write(text)
}

func (j *jsonLines) name(name string) {
	if j.b.Len() == 0 {
		j.b.WriteString("{\n")
	} else {
		j.b.WriteString(",\n")
	}
	j.b.WriteString(strconv.Quote(name) + ": ")
}

func (j *jsonLines) field(name string, v any) {
	j.name(name)
	j.value(v)
}

func writeList[T any](j *jsonLines, name string, list []T) {
	j.name(name)
	j.b.WriteString("[")
	for i, v := range list {
		if i > 0 {
			j.b.WriteString(",")
		}
		j.b.WriteString("\n")
		j.value(v)
	}
	j.b.WriteString("\n]")
}

const (
	sealWord  = "crc32c "
	sealBytes = len(sealWord) + 8 + 1
)

// seal ends the object and adds the line with the checksum of everything before it.
func (j *jsonLines) seal() ([]byte, error) {
	j.b.WriteString("\n}\n")
	fmt.Fprintf(&j.b, "%s%08x\n", sealWord, checksum(j.b.Bytes()))
	return j.b.Bytes(), j.err
}

// unseal checks the last line of a manifest and returns what is before it.
func unseal(file string, b []byte) ([]byte, error) {
	if len(b) < sealBytes {
		return nil, damaged(file, 0, "%d bytes are no manifest", len(b))
	}
	body, last := b[:len(b)-sealBytes], b[len(b)-sealBytes:]
	if want := fmt.Sprintf("%s%08x\n", sealWord, checksum(body)); string(last) != want {
		return nil, damaged(file, int64(len(body)), "the manifest ends with %q, its content asks for %q", last, want)
	}
	return body, nil
}

// decodeManifest unseals b, checks its format and version, and decodes it strictly into v. newest
// is the greatest version that is known.
func decodeManifest(file, format string, newest int, b []byte, v any) error {
	body, err := unseal(file, b)
	if err != nil {
		return err
	}
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return damaged(file, 0, "%w", err)
	}
	if head.Format != format {
		return damaged(file, 0, "format %q, want %q", head.Format, format)
	}
	if head.Version > newest {
		return newer(file, head.Version, newest)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return damaged(file, 0, "%w", err)
	}
	return nil
}

// checkManifest checks what was decoded of b, which was read from file: that its invariants hold,
// that file is its name, and that b is its encoding.
func checkManifest(file string, b []byte, m interface {
	check() error
	encode() ([]byte, error)
}, name func() string) error {
	if err := m.check(); err != nil {
		return damaged(file, 0, "%w", err)
	}
	if file != name() {
		return damaged(file, 0, "this is the content of %s", name())
	}
	if again, err := m.encode(); err != nil || !bytes.Equal(again, b) {
		return damaged(file, 0, "the content is not written as manifests are")
	}
	return nil
}

// readAll reads a file of at most limit bytes. file is relative to dir.
func readAll(fsys vfs.FS, dir, file string, limit int64) (b []byte, err error) {
	name := path.Join(dir, file)
	f, err := fsys.Open(name)
	if err != nil {
		return nil, unreadable(file, -1, err)
	}
	var info vfs.Info
	if s, ok := f.(vfs.Sized); ok {
		info.Size = s.Size()
	} else if info, err = fsys.Stat(name); err != nil {
		_ = f.Close() // opened for reading only: nothing can be lost
		return nil, unreadable(file, -1, err)
	}
	if info.Directory || info.Size > limit {
		_ = f.Close() // likewise
		return nil, damaged(file, -1, "%d bytes (directory: %t), want a file of at most %d", info.Size, info.Directory, limit)
	}
	b = make([]byte, info.Size)
	err = readFull(f, b, 0)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, unreadable(file, 0, err)
	}
	return b, nil
}

// readFull fills b from offset. It returns io.ErrUnexpectedEOF if the file ends before.
func readFull(f io.ReaderAt, b []byte, offset int64) error {
	n, err := f.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
