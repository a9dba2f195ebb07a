package nn

import "math"

// CrossEntropy returns the sum over rows of −log softmax(logits)[label], and the number of rows in
// which the label has the largest logit; among equals the first counts. logits has one row of
// len(logits)/len(labels) values for each label. Unless d is nil, CrossEntropy overwrites it with
// the gradient of scale·sum for the logits.
//
// Sums are in float64, so that a confident answer loses no digits.
func CrossEntropy(d, logits []float32, labels []int32, scale float64) (sum float64, correct int) {
	classes := 0
	if len(labels) > 0 {
		classes = len(logits) / len(labels)
	}
	for r, label := range labels {
		row := logits[r*classes:][:classes]
		var dRow []float32
		if d != nil {
			dRow = d[r*classes:][:classes]
		}
		loss, best := crossEntropy(dRow, row, int(label), scale)
		sum += loss
		if best == int(label) {
			correct++
		}
	}
	return sum, correct
}

func crossEntropy(d, row []float32, label int, scale float64) (loss float64, best int) {
	largest := math.Inf(-1)
	for j, z := range row {
		if z > row[best] {
			best = j
		}
		largest = max(largest, float64(z)) // max keeps NaN
	}
	total, right := 0.0, 0.0
	for j, z := range row {
		e := math.Exp(float64(z) - largest)
		total += e
		if j == label {
			right = e
		}
		if d != nil {
			d[j] = float32(e)
		}
	}
	if d != nil {
		factor := scale / total
		for j, e := range d {
			d[j] = float32(float64(e) * factor)
		}
		d[label] = float32(right*factor - scale)
	}
	return math.Log(total) + largest - float64(row[label]), best
}
