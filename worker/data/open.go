package data

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/kintsugi-ml/kintsugi"
)

// Open returns a data set by its name: one of those that [List] describes.
//
//	digits, text, cover, ratings, topics
//	                generated; dir is not used
//	shakespeare, covtype, movielens, jester, 20news, reuters
//	                the files that List describes, in dir or in the set's own folder in dir, where Fetch puts them
//	mnist, fashion  the four files as published, compressed or not, in dir or in the folder that Fetch made in dir
//	cifar10         the archive as published, or the *.bin files in it, compressed or not, in dir or in its folder cifar10
//	cifar10-jpeg    cifar10-jpeg.tar.gz in dir or in its folder cifar10: JPEG files that are named train/CLASS/NUMBER.jpg
//	                and test/CLASS/NUMBER.jpg; the first images are the first of each class
//	idx             four IDX files in dir, named as those of MNIST or with "train" or "test" (or "t10k"), and
//	                "images" or "labels", in their names
//
// If the name or the folder is wrong, the error wraps [kintsugi.ErrUsage]. If the content of a file
// is wrong, it wraps [kintsugi.ErrCorrupt].
func Open(name, dir string) (*Set, error) {
	s, err := find(name)
	if err != nil {
		return nil, err
	}
	set, err := s.open(dir)
	if err != nil {
		return nil, fmt.Errorf("data set %q: %w", name, err)
	}
	return set, nil
}

func (s *source) open(dir string) (*Set, error) {
	switch {
	case s.info.Builtin:
		return s.generate()
	case dir == "":
		return nil, fmt.Errorf("%w: it is read from a folder, and none is set: pass --data-dir or set KINTSUGI_DATA%s",
			kintsugi.ErrUsage, s.advice(""))
	}
	switch s.info.Kind {
	case KindText:
		return s.openText(dir)
	case KindVectors:
		return s.openVectors(dir)
	case KindRatings:
		return s.openRatings(dir)
	case KindDocuments:
		return s.openDocuments(dir)
	}
	read := s.images
	if read == nil {
		read = openIDX
	}
	set, err := read(s, dir)
	if err != nil {
		return nil, err
	}
	return set.Set(), nil
}

// place returns the set's own folder in dir, or dir if there is no such folder, and the names of
// the files there.
func (s *source) place(dir string) (place string, names []string, err error) {
	names, err = list(dir)
	if err != nil || !slices.Contains(names, s.folder) {
		return dir, names, err
	}
	place = filepath.Join(dir, s.folder)
	names, err = list(place)
	return place, names, err
}

// generate makes a set that needs no files.
func (s *source) generate() (*Set, error) {
	switch s.info.Kind {
	case KindText:
		text, _ := generateText(TextSeed, TextBytes)
		return newTextSet(s.info.Name, text)
	case KindVectors:
		return generateCover(), nil
	case KindRatings:
		return generateRatings(), nil
	case KindDocuments:
		return generateTopics(), nil
	}
	return openDigits(), nil
}

func openIDX(s *source, dir string) (*ImageSet, error) {
	paths, err := s.locate(dir)
	if err != nil {
		return nil, err
	}
	train, err := ReadIDX(paths[0], paths[1])
	if err != nil {
		return nil, err
	}
	test, err := ReadIDX(paths[2], paths[3])
	if err != nil {
		return nil, err
	}
	if train.Shape() != test.Shape() {
		return nil, corrupt("the images of %s have the shape %v but those of %s have %v: they are not of one set",
			paths[0], train.Shape(), paths[2], test.Shape())
	}
	return newImageSet(s.info.Name, train, test), nil
}

// advice says how to get the files, as the end of a sentence.
func (s *source) advice(dir string) string {
	switch {
	case len(s.files) == 0:
		return ""
	case s.url == "":
		return "; nobody publishes it in this form: docs/models.md says what the files hold"
	}
	command := "kintsugi data fetch " + s.info.Name
	if dir != "" {
		command += " --data-dir " + dir
	}
	return "; to download it: " + command
}

// roles describes the four files of a set, in the order in which locate returns them. The first
// word is the one that MNIST uses.
var roles = [4]struct {
	half []string
	kind string
	rank string
}{
	{[]string{"train"}, "images", "idx3"},
	{[]string{"train"}, "labels", "idx1"},
	{[]string{"t10k", "test"}, "images", "idx3"},
	{[]string{"t10k", "test"}, "labels", "idx1"},
}

// locate returns the paths of the four files in dir, or in the set's own folder in dir.
func (s *source) locate(dir string) (paths [4]string, err error) {
	names, err := list(dir)
	if err != nil {
		return paths, err
	}
	places := []string{dir}
	if s.folder != "" && slices.Contains(names, s.folder) {
		// First the set's own folder: files in dir itself may belong to another set with the same
		// file names.
		places = []string{filepath.Join(dir, s.folder), dir}
	}
	var missing error
	for _, place := range places {
		names, err := list(place)
		if err != nil {
			return paths, err
		}
		for i := range roles {
			var name string
			if name, err = s.choose(names, i); err != nil {
				break
			}
			paths[i] = filepath.Join(place, name)
		}
		switch {
		case err == nil:
			return paths, s.checkIdentity(paths)
		case missing == nil:
			missing = fmt.Errorf("%w: %s: %w%s", kintsugi.ErrUsage, place, err, s.advice(dir))
		}
	}
	return paths, missing
}

// list returns the names of the files in a folder.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the folder %s does not exist; check --data-dir and KINTSUGI_DATA", kintsugi.ErrUsage, dir)
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("%w: %s is a file; name the folder that holds it", kintsugi.ErrUsage, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("list data folder: %w", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// choose returns the file for a role. It looks for the names of MNIST first, including those with a
// dot as some archives have them. Then, for a folder of the user's own, it accepts any name that
// contains the right words.
func (s *source) choose(names []string, role int) (string, error) {
	r := roles[role]
	var usual []string
	for _, dash := range []string{"-", "."} {
		name := r.half[0] + "-" + r.kind + dash + r.rank + "-ubyte"
		usual = append(usual, name, name+".gz")
	}
	for _, name := range usual {
		if slices.Contains(names, name) {
			return name, nil
		}
	}
	if len(s.files) > 0 {
		return "", fmt.Errorf("there is no %s or %s", usual[0], usual[1])
	}
	var fit []string
	for _, name := range names {
		low := strings.ToLower(name)
		half := slices.ContainsFunc(r.half, func(word string) bool { return strings.Contains(low, word) })
		if half && strings.Contains(low, r.kind) && !strings.HasPrefix(name, ".") {
			fit = append(fit, name)
		}
	}
	switch len(fit) {
	case 0:
		return "", fmt.Errorf("there is no %s, and no file with %s and %q in its name",
			usual[0], quoted(r.half), r.kind)
	case 1:
		return fit[0], nil
	}
	return "", fmt.Errorf("%s could each be the %s %s; keep one, or name it %s",
		strings.Join(fit, ", "), r.half[len(r.half)-1], r.kind, usual[0])
}

func quoted(words []string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(q, " or ")
}

// checkIdentity refuses files that belong to another known set. All sets in the IDX format use the
// same file names, and training on the wrong set would succeed but mean nothing.
func (s *source) checkIdentity(paths [4]string) error {
	for i := range s.files {
		info, err := os.Stat(paths[i])
		if err != nil {
			return fmt.Errorf("open data file: %w", err)
		}
		for k := range sources {
			other := &sources[k]
			if other != s && len(other.files) == len(paths) && info.Size() == other.files[i].bytes {
				return fmt.Errorf("%w: %s is the file of data set %q; use that name, or another folder%s",
					kintsugi.ErrUsage, paths[i], other.info.Name, s.advice(""))
			}
		}
	}
	return nil
}
