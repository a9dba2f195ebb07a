package data

// The generated text consists of sentences of a small grammar: words that repeat, endings that
// agree with an earlier word, and unpredictable choices. It can be learned within minutes. The best
// possible loss is known, since the generator knows the probability of what it writes.

// Sizes of the set "text".
const (
	TextSeed  = 1
	TextBytes = 1_000_000
)

// The vocabulary of the grammar. The lists have no words in common, so a sentence has only one
// derivation. Their lengths are powers of two, so that choices are exactly uniform.
var (
	nouns = [16]string{"baker", "carpenter", "duke", "falcon", "garden", "harbour", "island", "king", "lantern", "miller",
		"orchard", "queen", "river", "sailor", "tower", "winter"}
	adjectives   = [8]string{"ancient", "bright", "crooked", "distant", "gentle", "hollow", "quiet", "young"}
	verbs        = [8]string{"call", "follow", "guard", "mend", "paint", "remember", "seek", "welcome"}
	prepositions = [4]string{"above", "behind", "near", "without"}
	articles     = [2][4]string{{"a", "every", "the", "this"}, {"many", "seven", "some", "these"}} // singular, plural
	endings      = [4]string{".\n", ". ", "; ", "! "}
)

// grammar writes sentences and adds up their information content.
type grammar struct {
	stream
	text []byte
	bits int // −log₂ of the probability of the text: each choice is one of 2ⁿ
}

// choose returns a number below 1<<bits.
func (g *grammar) choose(bits int) int {
	g.bits += bits
	return int(g.next() >> (64 - bits))
}

func (g *grammar) add(word string) { g.text = append(g.text, word...) }

// phrase writes an article, sometimes an adjective, and a noun. It returns 1 if the noun is plural,
// otherwise 0.
func (g *grammar) phrase() (plural int) {
	plural = g.choose(1)
	g.add(articles[plural][g.choose(2)])
	if g.choose(1) == 1 {
		g.add(" " + adjectives[g.choose(3)])
	}
	g.add(" " + nouns[g.choose(4)])
	if plural == 1 {
		g.add("s")
	}
	return plural
}

// sentence writes a subject, a verb that agrees with it, an object, sometimes a place, and an
// ending.
func (g *grammar) sentence() {
	plural := g.phrase()
	g.add(" " + verbs[g.choose(3)])
	if plural == 0 {
		g.add("s")
	}
	g.add(" ")
	g.phrase()
	if g.choose(1) == 1 {
		g.add(" " + prepositions[g.choose(2)] + " ")
		g.phrase()
	}
	g.add(endings[g.choose(2)])
}

// generateText returns the first n bytes of the sentences of a seed, and the entropy of these
// sentences in bits. Both are a function of the seed and n alone, on every machine and in all
// future versions.
func generateText(seed uint64, n int) (text []byte, entropy int) {
	g := &grammar{stream: stream{hash(forText, seed)}}
	for len(g.text) < n {
		g.sentence()
	}
	return g.text[:n], g.bits
}
