package model

// Group is a layer together with the following layers that are computed with it. All engines work
// on groups, so that no engine has to go through the layers itself.
type Group struct {
	Layer Layer // the first layer of the group; a Fork stands for its whole block
	Index int   // index of Layer in Description.Layers, which dropout masks are drawn with

	In, Out Shape // input of the first layer and output of the last

	// Params is the range of the group's parameters in the flat vector, including those inside a
	// block. W and B are the two tensors of a layer with parameters: weight and bias, or the two
	// tables of an Embedding.
	Params, W, B Span

	ReLU bool // a ReLU follows the Dense or Conv2D
	Pool int  // window size of the MaxPool that follows a Conv2D and its ReLU; 1: none

	// Needed says that an earlier group has parameters, so the gradient of this group's input is
	// needed.
	Needed bool

	Inside []Group // of a Fork: the groups between it and its Join
}

// Span is the range of values [Lo, Hi) of the flat vector.
type Span struct{ Lo, Hi int }

// Len returns the number of values.
func (s Span) Len() int { return s.Hi - s.Lo }

// Grouping says which layers an engine computes together, besides a Dense or Conv2D and the ReLU
// that follows it.
type Grouping struct {
	Pool bool // a Conv2D, its ReLU, and the MaxPool that follows
}

// Groups returns the layers in order, as groups. Layers that do nothing, Flatten and Dropout with
// rate 0, are left out.
func (d *Description) Groups(o Grouping) []Group {
	g := grouper{d: d, o: o}
	return g.block()
}

// grouper walks through the layers of a description.
type grouper struct {
	d      *Description
	o      Grouping
	at     int // index of the next layer
	offset int // index of the next parameter
	needed bool
}

// block returns the groups up to the Join of the current block, or to the end.
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

// computes reports whether a layer does anything. A Flatten does not, as rows hold the values of an
// image in order.
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
		g.at++ // the Join: every Fork of a description has one
	}
	r.Params.Hi, r.Out = g.offset, g.d.Shapes[g.at]
	return r
}

// take returns the range of the next n parameters.
func (g *grouper) take(n int) Span {
	s := Span{g.offset, g.offset + n}
	g.offset = s.Hi
	return s
}

// peek returns the next layer, or nil if there is none.
func (g *grouper) peek() Layer {
	if g.at == len(g.d.Layers) {
		return nil
	}
	return g.d.Layers[g.at]
}

// follows reports whether the next layer is l, and if so skips it.
func (g *grouper) follows(l Layer) bool {
	if g.peek() != l {
		return false
	}
	g.at++
	return true
}
