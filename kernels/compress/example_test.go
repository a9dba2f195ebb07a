package compress_test

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// A worker sends one value of four at a time. What it leaves out is sent with later pushes, once
// this one is counted.
func ExampleFeedback() {
	codec, err := compress.Parse("topk:0.25")
	if err != nil {
		fmt.Println(err)
		return
	}
	layout, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{4}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	feedback := compress.NewFeedback(codec, layout, 1)
	push := func(version kintsugi.Step, grads ...float32) kintsugi.PushID {
		id := kintsugi.PushID{Version: version}
		payload := feedback.Encode(nil, id, 0, grads)
		if _, err := kernels.Check(codec.Encoding(), len(grads), payload); err != nil {
			fmt.Println(err)
		}
		got := make([]float32, len(grads))
		if err := kernels.Best().Decode(got, codec.Encoding(), payload); err != nil {
			fmt.Println(err)
		}
		fmt.Println("push", version, "sends", got)
		return id
	}
	feedback.Counted(push(0, 8, 1, 4, 0))
	feedback.Dropped(push(1, 0, 1, 0, 0))
	feedback.Counted(push(2, 0, 1, 0, 0))
	feedback.Counted(push(3, 0, 0, 0, 0))
	fmt.Println("left:", feedback.Norm())
	// Output:
	// push 0 sends [8 0 0 0]
	// push 1 sends [0 0 4 0]
	// push 2 sends [0 0 4 0]
	// push 3 sends [0 2 0 0]
	// left: 0
}

// The lossless stage packs the payload of a whole frame if that makes it smaller.
func ExampleCodec_Pack() {
	codec, err := compress.Parse("fp32+auto")
	if err != nil {
		fmt.Println(err)
		return
	}
	grads := make([]float32, 4096) // most rows of an embedding have no gradient
	grads[100] = 1
	payload := codec.Encode(nil, grads, nil, 16, 0)
	packed, stage := codec.Pack(nil, payload)
	fmt.Println(stage, len(packed) < len(payload)/100)
	back, err := compress.Unpack(nil, stage, codec.Encoding(), packed, codec.MaxBytes(len(grads), 16))
	fmt.Println(len(back), err)
	// Output:
	// s2 true
	// 16384 <nil>
}
