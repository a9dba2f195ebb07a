package job

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/blas"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// Release and commit are set by the linker (Makefile).
var (
	Release = "devel"
	commit  = ""
)

// About identifies this binary.
type About struct{ Release, Commit string }

// Version returns what this binary is.
func Version() About {
	a := About{Release: Release, Commit: commit}
	if a.Commit == "" {
		a.Commit = "unknown"
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, s := range info.Settings {
				if s.Key == "vcs.revision" {
					a.Commit = s.Value
				}
			}
		}
	}
	return a
}

// String returns the output of --version, without a newline.
func (a About) String() string {
	return fmt.Sprintf("kintsugi %s, commit %s, %s %s/%s", a.Release, a.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// VersionCommand returns the command that tells what this binary is, and what it found.
func VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this binary and what it found on this machine", Args: cli.NoArgs, Example: "  kintsugi version",
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := cmd.OutOrStdout()
			fmt.Fprintln(w, Version())
			fmt.Fprintf(w, "protocol %d, checkpoint format %d\n", kintsugi.ProtocolVersion, ckpt.FormatVersion)
			lib, err := blas.Open("auto", 1)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "blas: %s\n", lib)
			for _, name := range blas.Outdated() {
				fmt.Fprintf(w, "blas: not %s, whose kernels are for older processors\n", name)
			}
			fmt.Fprintf(w, "kernels: %s (of %v)\n", kernels.Best().Name(), kernelNames())
			fmt.Fprintf(w, "gpu: %s\n", describeGPU())
			return nil
		},
	}
}
