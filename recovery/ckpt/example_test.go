package ckpt_test

import (
	"context"
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// A model is saved by two servers and restored by one.
func Example() {
	ctx := context.Background()
	fsys, dir := vfs.NewMem(), "runs/demo/checkpoint"
	layout, _ := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "weight", Shape: []int{100}}})

	// Each server saves its shard.
	var manifests []string
	for i, r := range layout.Split(2) {
		shard, _ := ckpt.NewFlat(layout, r, kintsugi.RuleSGD)
		for j := range shard.Params {
			shard.Params[j] = float32(i + 1)
		}
		w, err := ckpt.OpenWriter(fsys, dir, ckpt.WriterConfig{
			Layout: layout, Rule: kintsugi.RuleSGD, Shard: kintsugi.ShardID(i), Range: r, Line: 1, Fence: 1,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		saved, err := w.Save(ctx, ckpt.Snapshot{Step: 500, Load: shard.Load})
		if err != nil {
			fmt.Println(err)
			return
		}
		manifests = append(manifests, saved.File)
	}

	// The conductor publishes the checkpoint.
	err := ckpt.PublishRun(fsys, dir, &ckpt.RunManifest{
		Line: 1, Step: 500, Fence: 1, Rule: kintsugi.RuleSGD, Tensors: layout.Tensors,
	}, manifests)
	if err != nil {
		fmt.Println(err)
		return
	}

	// After a crash, each server restores the shard that it has then.
	m, _, err := ckpt.Newest(fsys, dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	all, _ := ckpt.NewFlat(layout, layout.Split(1)[0], m.Rule)
	err = ckpt.Restore(ctx, fsys, dir, m, layout, all.Range, all.Place)
	fmt.Println("step", m.Step, "first", all.Params[0], "last", all.Params[99], "error", err)
	// Output: step 500 first 1 last 2 error <nil>
}
