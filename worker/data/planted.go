package data

// Generated sets with a known structure, for models other than image classifiers. Each is a
// function of a constant seed, on every machine and in all future versions. They use no function
// whose last bit differs between machines.

// Sizes of the set "ratings".
const (
	plantedUsers, plantedItems = 800, 500
	plantedRatings             = 40_000
	plantedRank                = 4
)

// generateRatings draws ratings. A rating is a bias of the user, a bias of the item, the product of
// two planted rows of rank 4, and noise with a standard deviation of 0.3, which no prediction can
// remove. A few users and items have most of the ratings. No user rates an item twice.
func generateRatings() *Set {
	s := &stream{hash(forPlanted, 1)}
	row := func(n int) [][plantedRank + 1]float64 {
		rows := make([][plantedRank + 1]float64, n)
		for i := range rows {
			for k := range rows[i] {
				rows[i][k] = 0.6 * s.bell()
			}
		}
		return rows
	}
	users, items := row(plantedUsers), row(plantedItems)
	popular := func(n int) int {
		u := s.uniform(0, 1)
		return int(float64(float64(u*u) * float64(n)))
	}
	seen := make(map[[2]int]bool)
	all := &Ratings{}
	for all.Len() < plantedRatings {
		u, v := popular(plantedUsers), popular(plantedItems)
		if seen[[2]int{u, v}] {
			continue
		}
		seen[[2]int{u, v}] = true
		x, y := &users[u], &items[v]
		r := 3.5 + x[plantedRank] + y[plantedRank] + float64(0.3*s.bell())
		for k := range plantedRank {
			r += float64(x[k] * y[k])
		}
		all.add(u, v, float32(r))
	}
	train, test := all.split()
	set, err := newRatingSet("ratings", train, test)
	if err != nil {
		panic(err) // cannot happen: both halves have ratings, and a test opens the set
	}
	return set
}

// Sizes of the set "topics".
const (
	plantedDocuments, plantedTest = 1000, 200
	plantedWords, plantedTopics   = 800, 10
	plantedLength                 = 80 // tokens of a document
)

// generateTopics draws documents with up to three planted topics each. A topic has a range of
// words, in which words with small numbers are frequent; it overlaps the ranges of its neighbours.
// A fifth of the tokens is any word.
func generateTopics() *Set {
	s := &stream{hash(forPlanted, 2)}
	draw := func(n int) *Documents {
		d := &Documents{Start: []int{0}}
		for range n {
			var mix [3]int
			for i := range mix {
				mix[i] = int(s.next() % plantedTopics)
			}
			for range plantedLength {
				u := s.uniform(0, 1)
				w := mix[s.next()%3]*plantedWords/plantedTopics + int(float64(float64(u*u)*160))
				if s.next()%5 == 0 {
					w = int(s.next() % plantedWords)
				}
				d.Words = append(d.Words, int32(w%plantedWords))
			}
			d.end()
		}
		return d
	}
	train := draw(plantedDocuments)
	set, err := newCorpusSet("topics", train, draw(plantedTest), plantedWords)
	if err != nil {
		panic(err) // cannot happen: both halves have documents, and a test opens the set
	}
	return set
}

// Sizes of the set "cover".
const (
	coverTrain, coverTest = 12_000, 3_000
	coverNumbers          = 10 // number of numeric features
	coverAreas            = 4  // a vector is of one area
	coverSoils            = 40 // a vector is of one soil
	coverClasses          = 7
)

// generateCover draws vectors of the shape of Forest CoverType. A vector has 54 features: ten
// numbers with mean 0 and standard deviation about 1, and one-hot codes of 4 areas and 40 soils.
// There are seven classes; two of them have most of the vectors.
func generateCover() *Set {
	s := &stream{hash(forPlanted, 3)}
	var middle [coverClasses][coverNumbers]float64
	var soils [coverClasses][8]int
	for c := range coverClasses {
		for j := range middle[c] {
			middle[c][j] = s.uniform(-0.7, 0.7)
		}
		for j := range soils[c] {
			soils[c][j] = int(s.next() % coverSoils)
		}
	}
	share := [20]int{0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6}
	draw := func(n int) *Vectors {
		const features = coverNumbers + coverAreas + coverSoils
		v := &Vectors{Features: features, Classes: coverClasses, X: make([]float32, n*features)}
		for i := range n {
			c, x := share[s.next()%20], v.X[i*features:]
			v.Y = append(v.Y, int32(c))
			for j := range coverNumbers {
				x[j] = float32(middle[c][j] + s.bell())
			}
			area, soil := c%coverAreas, soils[c][s.next()%8]
			if s.next()%10 < 4 {
				area, soil = int(s.next()%coverAreas), int(s.next()%coverSoils)
			}
			x[coverNumbers+area], x[coverNumbers+coverAreas+soil] = 1, 1
		}
		return v
	}
	train := draw(coverTrain)
	return newVectorSet("cover", train, draw(coverTest))
}
