package model

import "math"

// lossStage is the softmax cross-entropy of the logits, its first input, with one-hot targets, its
// second. Rows without a target are padding and are not counted. It is one operation, because
// Gorgonia merges SoftMax and LogSoftMax of one node and then returns the wrong one.
type lossStage struct {
	classes int
	mean    float64 // 1 / number of labels in the batch; set before each run
	sum     float64 // sum of the losses of the last run, not divided by the number of labels
	p       []float64
}

func (s *lossStage) forward(y []float32, in [][]float32) {
	logits, targets := in[0], in[1]
	s.sum = 0
	for lo := 0; lo < len(logits); lo += s.classes {
		row, target := logits[lo:lo+s.classes], targets[lo:lo+s.classes]
		if class := oneHot(target); class >= 0 {
			s.sum += crossEntropy(row, class, s.p)
		}
	}
	y[0] = float32(s.sum * s.mean)
}

func (s *lossStage) backward(d, in [][]float32, _, dy []float32) {
	logits, targets := in[0], in[1]
	scale := s.mean * float64(dy[0])
	for lo := 0; lo < len(logits); lo += s.classes {
		row, dz := logits[lo:lo+s.classes], d[0][lo:lo+s.classes]
		class := oneHot(targets[lo : lo+s.classes])
		if class < 0 {
			clear(dz)
			continue
		}
		crossEntropy(row, class, s.p)
		s.p[class]--
		for j, p := range s.p {
			dz[j] = float32(p * scale)
		}
	}
}

// oneHot returns the class of a one-hot target, or −1 for a row of zeros.
func oneHot(target []float32) int {
	for j, t := range target {
		if t != 0 {
			return j
		}
	}
	return -1
}

// crossEntropy returns −log softmax(logits)[class] and overwrites p with softmax(logits). It
// computes in float64: ten exponentials per example are cheap, and a confident prediction loses no
// digits.
func crossEntropy(logits []float32, class int, p []float64) float64 {
	largest := math.Inf(-1)
	for _, z := range logits {
		largest = max(largest, float64(z)) // max propagates NaN
	}
	sum := 0.0
	for j, z := range logits {
		p[j] = math.Exp(float64(z) - largest)
		sum += p[j]
	}
	for j := range p {
		p[j] /= sum
	}
	return math.Log(sum) + largest - float64(logits[class])
}
