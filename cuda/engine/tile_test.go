package engine

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda"
)

// A large tile that sticks out of C, or leaves multiprocessors idle, would cost more than it saves.
func TestLargeTilesAreForLargeProducts(t *testing.T) {
	p := pass{precision: cuda.BF16}
	for _, c := range []struct{ m, n, batch, side int }{
		{4096, 4096, 1, largeTile}, {2048, 2048, 1, largeTile}, {2048, 1920, 1, smallTile}, {1, 1 << 20, 1, smallTile}, {127, 256, 512, smallTile},
		{128, 128, 256, largeTile}, {128, 128, 255, smallTile},
	} {
		kernel, side := p.tile(c.m, c.n, c.batch)
		want := map[int]string{smallTile: "gemm_bf16", largeTile: "gemm_bf16_large"}[c.side]
		if side != c.side || kernel != want {
			t.Errorf("%d products of %d×%d are computed by %s in tiles of %d; want %s, %d", c.batch, c.m, c.n, kernel, side, want, c.side)
		}
	}
}
