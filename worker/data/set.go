package data

// Examples is one half of a set. It is safe for concurrent use.
type Examples interface {
	// Len returns the number of examples.
	Len() int

	// Values returns the number of values of one example, Labels the number of its labels.
	Values() int
	Labels() int

	// Fill writes the examples at indices to x, [len(indices), Values], and their labels to y,
	// [len(indices), Labels]. x and y may be longer; the rest of them is not changed. An index may
	// occur more than once.
	//
	// Fill allocates nothing and keeps no slice. Its result has the same bits on every machine. It
	// panics if x or y is too short or an index is outside [0, Len).
	Fill(x []float32, y []int32, indices []int)
}

// Set is a named data set. Its examples are images or vectors with one label each, windows of a
// text, ratings, or documents.
type Set struct {
	Name  string
	Train Examples // *Ratings for ratings; nil for documents
	Test  Examples

	Shape    [3]int // of an example: channels, height, width; for a text, 1×1×characters
	Classes  int    // labels are below it; so are the tokens of a text
	Sequence bool   // a text: each value of an example is a token with a label of its own

	Users, Items int     // ratings: number of users and items; 0 for other sets
	Corpus       *Corpus // documents; nil for other sets
}
