package look

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
)

// stopping is the stop command: it ends a run whose processes were started one by one.
type stopping struct {
	remote
	Reason  string
	Within  time.Duration
	Unsaved bool
	Undo    bool

	client *etcd.Client
	creds  *mtls.Credentials // nil: plain TCP
	out    io.Writer
}

// StopCommand returns the command that ends a run early.
func StopCommand() *cobra.Command {
	s := &stopping{}
	cmd := &cobra.Command{
		Use: "stop", Short: "End a run on several hosts, after a last checkpoint", Args: cli.NoArgs,
		Long: "Stop asks the run's conductor to save the newest step and to end the run, and waits until that is done. Workers then end with status 0, and so\n" +
			"do coordinators and servers with --end-with-run; others stay, so that the last version can be read, until they get SIGTERM. It does not need\n" +
			"the settings of the run. Its exit status is 0 if the run is over and saved.\n\n" +
			"The end is kept in etcd, so whatever is started again under the name of the run ends as well. To go on from the last checkpoint, take it back\n" +
			"with --undo when all processes have ended, or start everything under another --run and the same store.",
		Example: "  kintsugi stop --etcd 10.0.0.2:2379 --run mnist --reason \"good enough\"\n  kintsugi stop --etcd 10.0.0.2:2379 --run mnist --undo",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case s.Within <= 0:
				return fmt.Errorf("%w: --within %v: give it a time, such as 5m", kintsugi.ErrUsage, s.Within)
			case s.Reason == "" || s.Reason == kintsugi.AllSteps:
				return fmt.Errorf("%w: --reason %q: say in words why this run ends early", kintsugi.ErrUsage, s.Reason)
			}
			var err error
			if s.client, s.creds, err = s.dial(cmd); err != nil {
				return err
			}
			defer s.client.Close()
			s.out = cmd.OutOrStdout()
			return s.command(cmd.Context())
		},
	}
	f := cmd.Flags()
	s.remote.register(f)
	f.StringVar(&s.Reason, "reason", "stopped by hand", "why, in words, for logs and reports")
	f.DurationVar(&s.Within, "within", SaveWithin, "how long to wait for the end; the request stays after that")
	f.BoolVar(&s.Unsaved, "without-checkpoint", false, "end the run without a last checkpoint: what came after the newest one is lost")
	f.BoolVar(&s.Undo, "undo", false, "let a run that was ended be started again under its name; its processes must have ended")
	return cmd
}

func (s *stopping) command(ctx context.Context) error {
	x, err := ask(ctx, s.client)
	switch {
	case err != nil:
		return err
	case x.unknown():
		return fmt.Errorf("run %s: %w", s.Run, x.isUnknown())
	case s.Undo:
		return s.undo(ctx, x)
	}
	if x.done != nil {
		fmt.Fprintf(s.out, "run %s was over already\n", s.Run)
		return s.ended(x.done)
	}
	if x.view == nil {
		return fmt.Errorf("run %s has not begun, and has nothing to save: end its processes", s.Run)
	}
	if err := s.client.PutStop(ctx, etcd.Stop{Checkpoint: !s.Unsaved, Reason: s.Reason}); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "run %s is asked to end\n", s.Run)
	done, err := s.await(ctx)
	if err != nil {
		return err
	}
	return s.ended(done)
}

// await waits until the run is over. Otherwise the error says what it waits for.
func (s *stopping) await(ctx context.Context) (*kintsugi.Done, error) {
	said := cli.Meanwhile(func(took time.Duration) { fmt.Fprintf(s.out, "it has not ended after %v\n", took) })
	defer said()
	waiting, cancel := context.WithTimeout(ctx, s.Within)
	defer cancel()
	for d := range s.client.WatchDone(waiting) {
		return &d, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	x, err := lookAt(ctx, s.client, s.creds, time.Second)
	if err != nil {
		return nil, err
	}
	if x.done != nil {
		return x.done, nil
	}
	st := x.status(time.Now())
	why := fmt.Sprintf("it is at step %d, and its newest checkpoint is of step %d", st.Step, st.Checkpoint)
	switch {
	case st.trouble != nil:
		why = st.trouble.Error()
	case st.Stands != "":
		why = "it waits for " + st.Stands
	case st.Failed != "":
		why = "the newest save failed: " + st.Failed
	}
	return nil, fmt.Errorf("run %s has not ended within %v, and ends as soon as it can: %s", s.Run, s.Within, why)
}

// ended reports how a run has ended, with an error if its last step was to be saved and is not.
func (s *stopping) ended(d *kintsugi.Done) error {
	fmt.Fprintf(s.out, "run %s ended at step %d: %s\n", s.Run, d.Step, d.Reason)
	if !d.Saved && !s.Unsaved {
		return fmt.Errorf("there is no checkpoint of step %d: see the logs of the servers for what the store said", d.Step)
	}
	return nil
}

// undo takes back the end of a run. A process that lives knows of the end, and would not go on.
func (s *stopping) undo(ctx context.Context, x facts) error {
	if n := len(x.servers) + len(x.workers); n > 0 || x.leader != "" {
		return fmt.Errorf("--undo: %d servers, %d workers and %s of run %s are there: end all of them first, since they know that the run is over, and would end again",
			len(x.servers), len(x.workers), leads(x.leader), s.Run)
	}
	if err := s.client.Reopen(ctx); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "run %s may be started again: it goes on from its newest checkpoint\n", s.Run)
	return nil
}

func leads(coordinator string) string {
	if coordinator == "" {
		return "no coordinator"
	}
	return "coordinator " + coordinator
}

// SaveWithin is the least time that an ending run waits for its last checkpoint. Its store may be
// unavailable, or slow with the first save of a large model.
const SaveWithin = 5 * time.Minute
