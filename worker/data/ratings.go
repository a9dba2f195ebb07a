package data

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Ratings is a list of ratings of items by users: the known entries of a matrix that is to be
// completed.
//
// Invariant: the three slices have the same length, each user is below Users, and each item below
// Items. A value in a set is (rating - Mean) / Deviation, with the mean and standard deviation of
// the training half. So one learning rate and one decay suit both stars and percentages.
type Ratings struct {
	Users, Items    int
	User, Item      []int32
	Value           []float32
	Mean, Deviation float32
}

// Len returns the number of ratings.
func (r *Ratings) Len() int { return len(r.Value) }

// Values returns 3: an example is user, item and value.
func (r *Ratings) Values() int { return 3 }

// Labels returns 0: the quantity to predict is the last value of the example.
func (r *Ratings) Labels() int { return 0 }

// Fill writes user, item and value of the ratings at indices to x, [len(indices), 3]. float32 holds
// users and items exactly. y is not changed. For the rest see [Examples].
func (r *Ratings) Fill(x []float32, _ []int32, indices []int) {
	if len(x) < 3*len(indices) {
		panic(fmt.Sprintf("data: fill %d ratings into %d values", len(indices), len(x)))
	}
	for i, k := range indices {
		x[3*i], x[3*i+1], x[3*i+2] = float32(r.User[k]), float32(r.Item[k]), r.Value[k]
	}
}

// add appends a rating.
func (r *Ratings) add(user, item int, value float32) {
	r.User, r.Item, r.Value = append(r.User, int32(user)), append(r.Item, int32(item)), append(r.Value, value)
}

// ReadRatings reads a file with one rating per line: user, item and value, separated by a tab or a
// comma. Further columns are ignored, and the first line may be a header. Users and items keep
// their numbers, which must be below 2²⁴; values are not changed either. The file may be compressed
// with gzip. If a line is wrong, the error wraps kintsugi.ErrCorrupt and names the line.
func ReadRatings(path string) (*Ratings, error) {
	r := &Ratings{}
	first := true
	err := readLines(path, func(line []byte) error {
		err := r.parse(line)
		if first && err != nil {
			err = nil // a header
		}
		first = false
		return err
	})
	if err == nil && r.Len() == 0 {
		err = fmt.Errorf("read %s: %w", path, corrupt("there is no rating in it"))
	}
	return r, err
}

func (r *Ratings) parse(line []byte) error {
	comma := []byte{'\t'}
	if !bytes.Contains(line, comma) {
		comma = []byte{','}
	}
	parts := bytes.SplitN(line, comma, 4)
	if len(parts) < 3 {
		return corrupt("%.60q is not user, item and rating, apart by tabs or commas", line)
	}
	user, ok := number(parts[0], maxID)
	item, fine := number(parts[1], maxID)
	if !ok || !fine {
		return corrupt("user %.20q, item %.20q: they must be numbers from 0, below %d", parts[0], parts[1], maxID)
	}
	value, err := strconv.ParseFloat(string(parts[2]), 32)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
		return corrupt("the rating %.20q is not a number", parts[2])
	}
	r.add(user, item, float32(value))
	return nil
}

// newRatingSet makes a set from two halves as read from files. It renumbers users and items from 0
// without gaps, and normalises values by the mean and the deviation of the training half.
func newRatingSet(name string, train, test *Ratings) (*Set, error) {
	if train.Len() == 0 || test.Len() == 0 {
		return nil, corrupt("%d ratings to train on and %d to test on: each half needs one", train.Len(), test.Len())
	}
	users, items := compact(train.User, test.User), compact(train.Item, test.Item)
	mean, deviation := spread(train.Value)
	for _, half := range []*Ratings{train, test} {
		half.Users, half.Items, half.Mean, half.Deviation = users, items, mean, deviation
		for i, v := range half.Value {
			half.Value[i] = (v - mean) / deviation
		}
	}
	return &Set{Name: name, Train: train, Test: test, Users: users, Items: items}, nil
}

// spread returns the mean and the standard deviation of values. The deviation is 1 if all values
// are equal.
func spread(values []float32) (mean, deviation float32) {
	n, sum, squares := float64(len(values)), 0.0, 0.0
	for _, v := range values {
		sum += float64(v)
	}
	for _, v := range values {
		d := float64(v) - sum/n
		squares += float64(d * d)
	}
	if squares == 0 {
		return float32(sum / n), 1
	}
	return float32(sum / n), float32(math.Sqrt(squares / n))
}

// compact renumbers the different values of the lists from 0, in ascending order, and returns how
// many there are.
func compact(lists ...[]int32) int {
	different := slices.Concat(lists...)
	slices.Sort(different)
	different = slices.Compact(different)
	for _, list := range lists {
		for i, v := range list {
			k, _ := slices.BinarySearch(different, v)
			list[i] = int32(k)
		}
	}
	return len(different)
}

// split moves a fifth of the ratings to the test half. A hash of a rating's position decides, so
// the choice never changes.
func (r *Ratings) split() (train, test *Ratings) {
	train, test = &Ratings{}, &Ratings{}
	for i, v := range r.Value {
		half := train
		if hash(forSplit, uint64(i))%5 == 0 {
			half = test
		}
		half.add(int(r.User[i]), int(r.Item[i]), v)
	}
	return train, test
}

// openRatings reads a set of ratings from two files, or from one file, of which a fifth becomes the
// test half.
func (s *source) openRatings(dir string) (*Set, error) {
	names := []string{s.files[0].name}
	if s.halves {
		names = append(names, s.files[1].name)
	}
	paths, err := s.within(dir, names...)
	if err != nil {
		return nil, err
	}
	var list []*Ratings
	for _, p := range paths {
		r, err := ReadRatings(p)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	if len(list) == 1 {
		train, test := list[0].split()
		list = []*Ratings{train, test}
	}
	return newRatingSet(s.info.Name, list[0], list[1])
}
