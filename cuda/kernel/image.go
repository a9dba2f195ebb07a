//go:build gpu

package kernel

import (
	"embed"
	"fmt"
)

//go:embed *.ptx
var images embed.FS

// Image returns the PTX of a family of kernels, such as "step", followed by the zero byte that the
// driver requires.
func Image(family string) ([]byte, error) {
	b, err := images.ReadFile(family + ".ptx")
	if err != nil {
		return nil, fmt.Errorf("no kernels of %q in this program: %w", family, err)
	}
	return append(b, 0), nil
}
