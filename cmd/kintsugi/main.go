// Command kintsugi trains machine-learning models on a parameter server that survives failures.
//
// See README.md for what it does, and "kintsugi COMMAND --help" for an example of each command.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
)

func main() {
	root := newRoot(os.Stdout, os.Stderr)
	cmd, err := root.ExecuteC()
	s := status(err, os.Stderr)
	if s == exitUsage && slices.Contains(roles, cmd.Name()) {
		s = exitConfig
	}
	os.Exit(s)
}

// roles are the commands that are restarted when they end.
var roles = []string{"coordinator", "server", "worker", "monitor", "etcd", "memory"}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "kintsugi",
		Short:         "Train models on a parameter server that survives failures",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version().String(),
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; %ssee %s --help", badFlag(err, ""), nearFlags(cmd, err), cmd.CommandPath())
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
	group("train", "Train on this machine", trainCommand(), rerunCommand(), tuneCommand(), programCommand(), dataCommand())
	group("look", "Look at runs", reportCommand(), costCommand(), checkpointCommand())
	group("hosts", "Train on several hosts, process by process", coordinatorCommand(), serverCommand(), workerCommand(), monitorCommand(), statusCommand(), stopCommand(), etcdCommand(), memoryCommand(), certsCommand())
	group("measure", "Measure and repeat experiments", benchCommand(), reproduceCommand(), simulateCommand())
	group("other", "And", versionCommand())
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	return root
}
