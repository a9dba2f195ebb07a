package bench

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// Spin keeps the given number of cores busy until ctx ends or the time has passed.
func Spin(ctx context.Context, cores int, long time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	var wg sync.WaitGroup
	for range cores {
		wg.Go(func() {
			for x := uint64(1); ctx.Err() == nil; {
				for range 1 << 16 {
					x = x*6364136223846793005 + 1442695040888963407
				}
				if x == 0 {
					return // never happens: the result is used
				}
			}
		})
	}
	wg.Wait()
}
