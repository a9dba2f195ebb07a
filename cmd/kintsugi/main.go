// Command kintsugi trains machine-learning models on a parameter server that survives failures.
//
// See README.md for what it does, and "kintsugi COMMAND --help" for an example of each command.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/checkpoint"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/look"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/measure"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/role"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
)

func main() {
	root := newRoot(os.Stdout, cli.Stderr)
	cmd, err := root.ExecuteC()
	s := cli.Status(err, cli.Stderr)
	if s == cli.ExitUsage && slices.Contains(roles, cmd.Name()) {
		s = cli.ExitConfig
	}
	_ = cli.Stderr.Flush(lastWords) // nobody is there to be told that nobody has read it
	os.Exit(s)
}

// lastWords is how long a process that ends waits for a reader of its last message. Whoever starts it
// again waits as well.
const lastWords = 2 * time.Second

// roles are the commands that are restarted when they end.
var roles = []string{"coordinator", "server", "worker", "monitor", "etcd", "memory"}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "kintsugi",
		Short:         "Train models on a parameter server that survives failures",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       job.Version().String(),
		Args:          cli.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; %ssee %s --help", cli.BadFlag(err, ""), nearFlags(cmd, err), cmd.CommandPath())
	})
	root.SetUsageFunc(usage)
	root.SetHelpFunc(help)
	root.SetVersionTemplate("{{.Version}}\n")
	group := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("train", "Train on this machine", train.Command(), train.RerunCommand(), measure.TuneCommand(), job.ProgramCommand(), job.DataCommand())
	group("look", "Look at runs", look.ReportCommand(), look.CostCommand(), checkpoint.Command())
	group("hosts", "Train on several hosts, process by process", role.CoordinatorCommand(), role.ServerCommand(), role.WorkerCommand(), train.MonitorCommand(), look.StatusCommand(), look.StopCommand(), role.EtcdCommand(), role.MemoryCommand(), role.CertsCommand())
	group("measure", "Measure and repeat experiments", measure.BenchCommand(), measure.ReproduceCommand(), measure.SimulateCommand())
	group("other", "And", job.VersionCommand())
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	return root
}
