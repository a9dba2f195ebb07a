package model

// Group is a layer as it is computed: with those behind it that are computed together with it. It
// says of a description what every engine must know before it computes, so that no engine goes
// through the layers by itself.
type Group struct {
	Layer Layer // the first of them; a Fork stands for its whole block
	Index int   // of Layer in Description.Layers: dropout draws by it

	In, Out Shape // what enters the first of its layers, and leaves the last

	// Params are its parameters, in the flat vector, those inside a block included. W and B are the
	// two tensors of a layer that has any: weight and bias, or the two tables of an Embedding.
	Params, W, B Span

	ReLU bool // of a Dense or a Conv2D: a ReLU is behind it
	Pool int  // of a Conv2D: the windows of the MaxPool behind it and its ReLU; 1: there is none

	// Needed says that a group before has parameters, so that somebody wants a gradient for what enters this one.
	Needed bool

	Inside []Group // of a Fork: what is between it and its Join
}

// Span is the values [Lo, Hi) of the flat vector.
type Span struct{ Lo, Hi int }

// Len returns the number of values.
func (s Span) Len() int { return s.Hi - s.Lo }

// Grouping says what an engine computes together, besides a ReLU with the Dense or the Conv2D before it.
type Grouping struct {
	Pool bool // a MaxPool with the Conv2D before it and its ReLU
}

// Groups returns the layers in order, as an engine computes them. Layers that compute nothing, a
// Flatten or a Dropout of nothing, are in none.
func (d *Description) Groups(o Grouping) []Group {
	g := grouper{d: d, o: o}
	return g.block()
}

// grouper goes through the layers of a description.
type grouper struct {
	d      *Description
	o      Grouping
	at     int // the next layer
	offset int // of the next parameter
	needed bool
}

// block returns the groups up to the next Join that belongs to no Fork among them, or to the end.
func (g *grouper) block() (groups []Group) {
	for l := g.peek(); l != nil && l != (Join{}); l = g.peek() {
		if computes(l) {
			groups = append(groups, g.next())
		} else {
			g.at++
		}
	}
	return groups
}

// computes reports whether a layer does anything. Rows hold an image's values in order, flattened or not.
func computes(l Layer) bool {
	switch l := l.(type) {
	case Flatten:
		return false
	case Dropout:
		return l.Rate > 0
	}
	return true
}

func (g *grouper) next() Group {
	i := g.at
	r := Group{Layer: g.d.Layers[i], Index: i, In: g.d.Shapes[i], Pool: 1, Needed: g.needed}
	r.Params.Lo = g.offset
	g.at++
	if tensors := g.d.tensors[g.d.first[i]:g.d.first[i+1]]; len(tensors) > 0 {
		r.W, r.B = g.take(tensors[0].Values()), g.take(tensors[1].Values())
		g.needed = true
	}
	switch r.Layer.(type) {
	case Dense:
		r.ReLU = g.follows(ReLU{})
	case Conv2D:
		r.ReLU = g.follows(ReLU{})
		if p, ok := g.peek().(MaxPool); ok && g.o.Pool {
			r.Pool = p.Size
			g.at++
		}
	case Fork:
		r.Inside = g.block()
		g.at++ // the Join: a description's forks are joined
	}
	r.Params.Hi, r.Out = g.offset, g.d.Shapes[g.at]
	return r
}

// take returns where the next n parameters are.
func (g *grouper) take(n int) Span {
	s := Span{g.offset, g.offset + n}
	g.offset = s.Hi
	return s
}

// peek returns the next layer; nil: there is none.
func (g *grouper) peek() Layer {
	if g.at == len(g.d.Layers) {
		return nil
	}
	return g.d.Layers[g.at]
}

// follows reports whether the next layer is l, and passes it.
func (g *grouper) follows(l Layer) bool {
	if g.peek() != l {
		return false
	}
	g.at++
	return true
}
