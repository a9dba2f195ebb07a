package main

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// The names of the files of an IDX data set.
const (
	trainImages, trainLabels = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
	testImages, testLabels   = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
)

// writeImages writes a data set of three classes to a new folder: n training images of side×side pixels,
// each noise with a third of its rows bright, and a tenth as many test images. It returns the folder.
func writeImages(t *testing.T, n, side int) string {
	t.Helper()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	half := func(images, labels string, n int) {
		pixels := idxHeader(0x803, n, side, side)
		classes := idxHeader(0x801, n)
		for i := range n {
			classes = append(classes, byte(i%3))
			for p := range side * side {
				bright := 0
				if p/side*3/side == i%3 {
					bright = 100
				}
				pixels = append(pixels, byte(bright+rng.IntN(156)))
			}
		}
		writeFile(t, filepath.Join(dir, images), pixels)
		writeFile(t, filepath.Join(dir, labels), classes)
	}
	half(trainImages, trainLabels, n)
	half(testImages, testLabels, n/10)
	return dir
}

// idxHeader returns the beginning of an IDX file.
func idxHeader(magic uint32, dims ...int) []byte {
	b := binary.BigEndian.AppendUint32(nil, magic)
	for _, d := range dims {
		b = binary.BigEndian.AppendUint32(b, uint32(d))
	}
	return b
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
}
