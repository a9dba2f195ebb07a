package data

import (
	"bytes"
	"fmt"
)

// Documents is a list of documents, each a bag of words.
//
// Invariant: the tokens of document d are [Start[d], Start[d+1]), so Start has one element more
// than there are documents.
type Documents struct {
	Start []int   // by document, with an end element: index of its first token
	Words []int32 // by token: its word
}

// Len returns the number of documents.
func (d *Documents) Len() int { return len(d.Start) - 1 }

// Tokens returns the words of document i. The caller must not change them.
func (d *Documents) Tokens(i int) []int32 { return d.Words[d.Start[i]:d.Start[i+1]] }

// end ends the current document.
func (d *Documents) end() { d.Start = append(d.Start, len(d.Words)) }

// Corpus has documents to find topics in and documents to evaluate topics with. Words are below
// Vocabulary.
type Corpus struct {
	Vocabulary  int
	Train, Test *Documents
}

// ReadLDAC reads documents in the format of lda-c: each line has the number of different words, and
// id:count for each of them. A document may be empty. The tokens of a document are in the order of
// the file, so equal words are adjacent. words is the largest id plus one. The file may be
// compressed with gzip. If a line is wrong, the error wraps kintsugi.ErrCorrupt and names the line.
func ReadLDAC(path string) (d *Documents, words int, err error) {
	d = &Documents{Start: []int{0}}
	err = readLines(path, func(line []byte) error {
		most, err := d.parse(line)
		words = max(words, most)
		return err
	})
	return d, words, err
}

func (d *Documents) parse(line []byte) (words int, err error) {
	fields := bytes.Fields(line)
	if len(fields) == 0 {
		return 0, corrupt("a line without a number of words; a document without words is a 0")
	}
	if n, ok := number(fields[0], maxID); !ok || n != len(fields)-1 {
		return 0, corrupt("the line says %.20q different words and has %d", fields[0], len(fields)-1)
	}
	for _, f := range fields[1:] {
		a, b, _ := bytes.Cut(f, []byte{':'})
		word, ok := number(a, maxID)
		count, fine := number(b, maxCount)
		if !ok || !fine || count == 0 {
			return 0, corrupt("%.40q is not id:count with an id below %d and a count from 1 to %d", f, maxID, maxCount-1)
		}
		if len(d.Words)+count > maxTokens {
			return 0, corrupt("there are more than %d tokens", maxTokens)
		}
		for range count {
			d.Words = append(d.Words, int32(word))
		}
		words = max(words, word+1)
	}
	d.end()
	return words, nil
}

// newCorpusSet makes a set from two halves. It removes words from the test documents that no
// training document has, since nothing is known about their topics.
func newCorpusSet(name string, train, test *Documents, words int) (*Set, error) {
	if len(train.Words) == 0 || len(test.Words) == 0 {
		return nil, corrupt("%d tokens to train on and %d to test on: each half needs one", len(train.Words), len(test.Words))
	}
	known := make([]bool, words)
	for _, w := range train.Words {
		known[w] = true
	}
	kept := &Documents{Start: []int{0}}
	for i := range test.Len() {
		for _, w := range test.Tokens(i) {
			if known[w] {
				kept.Words = append(kept.Words, w)
			}
		}
		kept.end()
	}
	return &Set{Name: name, Corpus: &Corpus{Vocabulary: words, Train: train, Test: kept}}, nil
}

func (s *source) openDocuments(dir string) (*Set, error) {
	paths, err := s.within(dir, s.files[0].name, s.files[1].name)
	if err != nil {
		return nil, err
	}
	train, words, err := ReadLDAC(paths[0])
	if err != nil {
		return nil, err
	}
	test, more, err := ReadLDAC(paths[1])
	if err != nil {
		return nil, err
	}
	set, err := newCorpusSet(s.info.Name, train, test, max(words, more))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", paths[0], err)
	}
	return set, nil
}
