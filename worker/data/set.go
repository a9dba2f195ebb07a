package data

// Examples is one half of a set. It is safe for concurrent use.
type Examples interface {
	// Len returns the number of examples.
	Len() int

	// Values returns the number of values of one example, Labels that of its labels.
	Values() int
	Labels() int

	// Fill writes the examples at indices to x, [len(indices), Values], and their labels to y,
	// [len(indices), Labels]. Both slices may be longer; the rest is left alone. An index may repeat.
	//
	// Fill allocates nothing and keeps no slice. Its result is exact: equal bits on every machine. It panics
	// if x or y is too short or an index is outside [0, Len).
	Fill(x []float32, y []int32, indices []int)
}

// Set is a named data set of one kind of examples: images or vectors with one label each, windows
// of a text, ratings, or documents.
type Set struct {
	Name  string
	Train Examples // of ratings *Ratings; nil for documents
	Test  Examples

	Shape    [3]int // of an example: channels, height, width; a text has one channel and height 1
	Classes  int    // labels are below; the tokens of a text as well
	Sequence bool   // a text: each value of an example is a token and has a label

	Users, Items int     // ratings: the sides of the matrix; 0 for other sets
	Corpus       *Corpus // documents; nil for other sets
}
