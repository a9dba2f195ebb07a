package job

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/blas"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// release and commit are set by the linker (Makefile). Ask Version for what a binary is.
var (
	release string
	commit  string
)

// About identifies this binary.
type About struct{ Release, Commit string }

// Version returns what this binary is.
func Version() About {
	info, _ := debug.ReadBuildInfo()
	return identify(release, commit, info)
}

// identify returns what the linker or, if it was told nothing, the go command has noted of a binary: go
// build notes a commit, and go install the version of a module. info may be nil.
func identify(release, commit string, info *debug.BuildInfo) About {
	version := ""
	if info != nil && info.Main.Version != "(devel)" {
		version = info.Main.Version
	}
	if info != nil && commit == "" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value
			}
		}
	}
	return About{
		Release: cmp.Or(release, strings.TrimPrefix(version, "v"), "devel"),
		Commit:  cmp.Or(commit, version, "unknown"), // the tag of a release names a commit too
	}
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
