package kintsugi_test

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
)

// A model of two tensors is cut into chunks, and the chunks are dealt to two shards.
func ExampleNewLayout() {
	layout, err := kintsugi.NewLayout([]kintsugi.Tensor{
		{Name: "w", Shape: []int{6, 8}},
		{Name: "b", Shape: []int{8}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(layout.Values, "values")
	for i, c := range layout.Chunks {
		fmt.Printf("chunk %d: values %d to %d, of %s\n", i, c.Lo, c.Hi, layout.Tensors[c.Tensor].Name)
	}
	for s, r := range layout.Split(2) {
		lo, hi := layout.Span(r)
		fmt.Printf("shard %d: chunks %d to %d, values %d to %d\n", s, r.Lo, r.Hi, lo, hi)
	}
	// Output:
	// 56 values
	// chunk 0: values 0 to 16, of w
	// chunk 1: values 16 to 32, of w
	// chunk 2: values 32 to 48, of w
	// chunk 3: values 48 to 56, of b
	// shard 0: chunks 0 to 2, values 0 to 32
	// shard 1: chunks 2 to 4, values 32 to 56
}
