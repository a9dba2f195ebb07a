package look

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/role"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/internal/words"
)

// remote names a run on several hosts, for commands that need none of its settings.
type remote struct {
	Etcd []string
	Run  string
	job.Security
}

func (r *remote) register(f *pflag.FlagSet) {
	r.Security.Register(f)
	f.StringSliceVar(&r.Etcd, "etcd", []string{"127.0.0.1:2379"}, "addresses of etcd")
	f.StringVar(&r.Run, "run", "default", "name of the run in etcd")
}

// dial returns a client of the run, which the caller closes, and the credentials of an operator; nil:
// plain TCP.
func (r *remote) dial(cmd *cobra.Command) (*etcd.Client, *mtls.Credentials, error) {
	if err := job.FromEnvironment(cmd.Flags(), job.TLSFlag, "etcd", "run"); err != nil {
		return nil, nil, err
	}
	creds, err := r.Credentials(cmd.Context(), mtls.Operator, mtls.Any, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	client, err := job.DialEtcd(cmd.Context(), r.Etcd, r.Run, etcd.WithTLS(creds))
	return client, creds, err
}

// StatusCommand returns the command that shows the present state of a run.
func StatusCommand() *cobra.Command {
	var run remote
	var listens time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show the state of a run on several hosts: who is there, who holds what, its progress", Args: cli.NoArgs,
		Long: "Status asks etcd who is there and the run's conductor how far it is, and ends. It does not need the settings of the run. Its exit status\n" +
			"is 0 if the conductor has answered or the run is over, and 1 otherwise.",
		Example: "  kintsugi status --etcd 10.0.0.2:2379 --run mnist",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if listens <= 0 {
				return fmt.Errorf("%w: --listen-for %v: give it a time, such as 2s", kintsugi.ErrUsage, listens)
			}
			client, creds, err := run.dial(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			x, err := lookAt(cmd.Context(), client, creds, listens)
			if err != nil {
				return err
			}
			s := x.status(time.Now())
			s.Run = run.Run
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				err = e.Encode(s)
			} else {
				err = s.write(cmd.OutOrStdout())
			}
			if err == nil && s.trouble != nil {
				err = s.trouble
			}
			return err
		},
	}
	f := cmd.Flags()
	run.register(f)
	f.DurationVar(&listens, "listen-for", 2*time.Second, "how long the conductor is listened to")
	f.BoolVar(&asJSON, "json", false, "print it as JSON")
	return cmd
}

// facts are what etcd and the conductor say about a run.
type facts struct {
	view             *kintsugi.View // nil: none yet
	servers, workers []etcd.Member
	leader           string         // the leading coordinator; "": nobody leads
	waits            string         // what the coordinator waits for; "": nothing
	spares           [2][]string    // hosts of servers and of workers that wait for a place
	done             *kintsugi.Done // nil: the run is not over
	events           []kintsugi.RunEvent
	silent           error    // why the conductor does not answer
	others           []string // runs that etcd knows, if it does not know this one
}

// runStatus is the output of status.
type runStatus struct {
	Run            string         `json:"run"`
	Over           string         `json:"over,omitempty"` // the reason
	Step           kintsugi.Step  `json:"step"`
	Loss           *record.Number `json:"loss,omitempty"`
	StepsPerSecond float64        `json:"steps_per_second,omitempty"` // over the newest steps
	Ago            float64        `json:"step_seconds_ago,omitempty"` // time since the newest step, by the clocks of this host and of the conductor
	Admitted       uint32         `json:"workers_admitted"`           // at the newest step
	Checkpoint     kintsugi.Step  `json:"checkpoint_step"`            // the newest full checkpoint that is known
	Failed         string         `json:"checkpoint_error,omitempty"` // of the newest save that was tried
	View           uint64         `json:"view"`
	Line           kintsugi.Line  `json:"line"`
	Reason         string         `json:"reason,omitempty"` // of the view
	Coordinator    string         `json:"coordinator,omitempty"`
	Stands         string         `json:"waits_for,omitempty"`       // what the conductor waits for, if no step is taken
	Waits          string         `json:"waits_for_store,omitempty"` // why the coordinator cannot put a view
	Servers        []serverStatus `json:"servers"`
	Workers        []uint32       `json:"workers"`                 // registered workers
	SpareServers   []string       `json:"spare_servers,omitempty"` // hosts of those that wait for a place
	SpareWorkers   []string       `json:"spare_workers,omitempty"`

	trouble error
}

// serverStatus is the status of one server.
type serverStatus struct {
	Index       uint32               `json:"index"`
	Incarnation kintsugi.Incarnation `json:"incarnation,omitempty"` // 0: not registered
	Address     string               `json:"address,omitempty"`
	Heads       []kintsugi.ShardID   `json:"heads,omitempty"`
	Follows     []kintsugi.ShardID   `json:"follows,omitempty"`
	Conducts    bool                 `json:"conducts,omitempty"`
	CatchesUp   bool                 `json:"catches_up,omitempty"`
	Leaving     bool                 `json:"leaving,omitempty"`
	NotReached  []string             `json:"not_reached,omitempty"` // servers that it does not reach
	Outside     bool                 `json:"outside,omitempty"`     // it has a lease, but the view does not use this life of it
}

// lookAt collects the facts. If a stream ends meanwhile, because of a new view or because the run is
// over, it listens again: that is no error of the run. It does so only a few times, since the status
// of a run with ever-changing views must be reported too.
func lookAt(ctx context.Context, client *etcd.Client, creds *mtls.Credentials, listens time.Duration) (facts, error) {
	x, err := ask(ctx, client)
	for tries := 5; err == nil && x.view != nil && x.done == nil; tries-- {
		x.events, x.silent = Listen(ctx, *x.view, creds, listens)
		if x.silent == nil {
			return renewed(ctx, client, x)
		}
		if tries == 1 {
			break
		}
		select { // etcd has a new view before its conductor does
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return facts{}, ctx.Err()
		}
		was := x
		if x, err = ask(ctx, client); err == nil && x.done == nil && x.view != nil && x.view.Number == was.view.Number && !errors.Is(was.silent, kintsugi.ErrStaleView) {
			x = was // the conductor itself fails
			break
		}
	}
	return x, err
}

// renewed returns facts with what etcd says now, after the conductor was listened to, if the events are
// those of the conductor of the view still. The conductor says before etcd does that the run is over.
func renewed(ctx context.Context, client *etcd.Client, x facts) (facts, error) {
	now, err := ask(ctx, client)
	if err != nil {
		return facts{}, err
	}
	if now.view != nil && now.view.Line == x.view.Line && now.view.Conductor == x.view.Conductor {
		now.events = x.events
		x = now
	}
	x.done = now.done
	if n := len(x.events); n > 0 && x.done == nil {
		if done, over := x.events[n-1].(kintsugi.Done); over {
			x.done = &done
		}
	}
	return x, nil
}

// ask collects what etcd says.
func ask(ctx context.Context, client *etcd.Client) (x facts, err error) {
	var errs [9]error
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	x.view, _, errs[0] = client.View(ctx)
	x.servers, errs[1] = client.Members(ctx, etcd.Server)
	x.workers, errs[2] = client.Members(ctx, etcd.Worker)
	x.leader, errs[3] = client.Leader(ctx)
	x.leader, _, _ = strings.Cut(x.leader, " ") // what follows is not for people
	x.done, errs[4] = client.Done(ctx)
	x.waits, errs[5] = client.Waits(ctx)
	x.spares[0], errs[6] = client.Waiting(ctx, etcd.Server)
	x.spares[1], errs[7] = client.Waiting(ctx, etcd.Worker)
	if x.unknown() {
		x.others, errs[8] = client.Runs(ctx)
	}
	return x, errors.Join(errs[:]...)
}

// Listen receives the conductor's events for a while, or until the run is over: first the ones it
// has kept, then new ones. The error says why it does not send any.
func Listen(ctx context.Context, v kintsugi.View, creds *mtls.Credentials, d time.Duration) (events []kintsugi.RunEvent, err error) {
	whole := ctx
	ctx, cancel := context.WithCancel(ctx) // no deadline, since the conductor would know it, and might end the stream just before
	defer cancel()
	defer time.AfterFunc(d, cancel).Stop()
	peer, err := transport.Dial(v.Servers[v.Conductor].Address, transport.DialTLS(creds, v.Conductor))
	if err != nil {
		return nil, err
	}
	defer peer.Close()
	stream, err := peer.Watch(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(transport.WatchRequest{Line: v.Line}); err != nil {
		return nil, err
	}
	for {
		e, err := stream.Recv()
		switch {
		case ctx.Err() != nil && len(events) == 0: // either there are no events yet, or the conductor hangs
			return nil, peer.Ping(whole, time.Second)
		case ctx.Err() != nil:
			return events, nil
		case err != nil:
			return events, err
		}
		events = append(events, e)
		if _, over := e.(kintsugi.Done); over { // the last one, but the conductor may stay
			return events, nil
		}
	}
}

// status returns the status that follows from the facts at time now.
func (x *facts) status(now time.Time) runStatus {
	s := runStatus{Coordinator: x.leader, Waits: x.waits, SpareServers: x.spares[0], SpareWorkers: x.spares[1]}
	var steps []kintsugi.StepEvent
	for _, e := range x.events {
		switch e := e.(type) {
		case kintsugi.StepEvent:
			steps, s.Stands = append(steps, e), ""
		case kintsugi.StandEvent:
			s.Stands = e.Waits
		case kintsugi.CheckpointEvent:
			if s.Failed = e.Err; !e.Running && e.Err == "" {
				s.Checkpoint = max(s.Checkpoint, e.Step)
			}
		}
	}
	if v := x.view; v != nil {
		s.View, s.Line, s.Reason, s.Step = uint64(v.Number), v.Line, v.Reason, v.RestoreStep
		s.Checkpoint = max(s.Checkpoint, v.RestoreStep)
	}
	if n := len(steps); n > 0 {
		last := steps[n-1]
		loss := record.Number(last.Loss)
		s.Step, s.Loss, s.Admitted = last.Step, &loss, last.Workers
		s.Ago = max(0, now.Sub(last.Time).Seconds())
		first := steps[max(0, n-50)]
		if d := last.Time.Sub(first.Time); d > 0 {
			s.StepsPerSecond = float64(last.Step-first.Step) / d.Seconds()
		}
	}
	for _, m := range x.workers {
		s.Workers = append(s.Workers, m.Index)
	}
	slices.Sort(s.Workers)
	s.Servers = x.serverStatus()
	switch {
	case x.done != nil:
		s.Step, s.Over = x.done.Step, x.done.Reason
	case x.unknown():
		s.trouble = x.isUnknown()
	case x.view == nil && x.waits != "":
		s.trouble = errors.New("the run has not begun: it waits for its store, and begins by itself once that can be read and written")
	case x.view == nil:
		s.trouble = errors.New("the run has not begun: there is no view before all servers have registered and a coordinator leads")
	case x.silent != nil:
		s.trouble = fmt.Errorf("server/%d, which conducts, does not tell how far the run is: %w", x.view.Conductor, x.silent)
	}
	return s
}

// isUnknown returns the error that etcd knows nothing of the run.
func (x *facts) isUnknown() error {
	const most = 10
	switch n := len(x.others); {
	case n == 0:
		return errors.New("etcd knows nothing of this run, nor of any other: check --etcd")
	case n > most:
		return fmt.Errorf("etcd knows nothing of this run: check --run. It knows %d others, among them %s", n, strings.Join(x.others[:most], ", "))
	default:
		return fmt.Errorf("etcd knows nothing of this run: check --run. It knows %s", strings.Join(x.others, ", "))
	}
}

// unknown reports whether etcd knows nothing of the run.
func (x *facts) unknown() bool {
	return x.view == nil && len(x.servers)+len(x.workers) == 0 && x.leader == ""
}

// serverStatus returns the status of each server in the view, and of each other registered server.
func (x *facts) serverStatus() (list []serverStatus) {
	at := make(map[uint32]int)
	place := func(index uint32) *serverStatus {
		if _, known := at[index]; !known {
			at[index] = len(list)
			list = append(list, serverStatus{Index: index})
		}
		return &list[at[index]]
	}
	if v := x.view; v != nil {
		for i := range v.Servers {
			place(uint32(i))
		}
		for i, chain := range v.Chains {
			for k, id := range chain {
				p := place(uint32(id))
				if k == 0 {
					p.Heads = append(p.Heads, kintsugi.ShardID(i))
				} else {
					p.Follows = append(p.Follows, kintsugi.ShardID(i))
				}
			}
		}
		place(uint32(v.Conductor)).Conducts = true
	}
	for _, m := range x.servers {
		p := place(m.Index)
		var value role.ServerValue
		_ = json.Unmarshal(m.Value, &value) // the coordinator refuses values that cannot be parsed
		p.Incarnation, p.Address, p.Leaving = m.Incarnation, value.Address, value.Leaving || value.Hold
		p.NotReached = x.notReached(value.Apart)
		id := kintsugi.ServerID(m.Index)
		if v := x.view; v == nil || int(id) >= len(v.Servers) || v.Servers[id].Incarnation != m.Incarnation || !Holds(*v, id) {
			p.Outside = v != nil
			p.Heads, p.Follows, p.Conducts = nil, nil, false
		} else {
			p.CatchesUp = value.Whole < v.Newest(id)
		}
	}
	slices.SortFunc(list, func(a, b serverStatus) int { return cmp.Compare(a.Index, b.Index) })
	return list
}

// notReached returns the names of those lives that are registered.
func (x *facts) notReached(lives []kintsugi.Life) (names []string) {
	for _, l := range lives {
		if slices.ContainsFunc(x.servers, func(m etcd.Member) bool { return m.Index == uint32(l.Server) && m.Incarnation == l.Incarnation }) {
			names = append(names, fmt.Sprintf("server/%d", l.Server))
		}
	}
	return names
}

// write writes the status in words.
func (s *runStatus) write(w io.Writer) error {
	fmt.Fprintf(w, "run %s: ", s.Run)
	switch {
	case s.Over != "":
		fmt.Fprintf(w, "over at step %d: %s\n", s.Step, s.Over)
	case s.View == 0:
		fmt.Fprintln(w, "not begun")
	default:
		fmt.Fprintf(w, "step %d", s.Step)
		if s.Loss != nil {
			fmt.Fprintf(w, ", %.1f s ago, %s a second, loss %.5g, %d workers", s.Ago, words.Digits(s.StepsPerSecond, 3), float64(*s.Loss), s.Admitted)
		}
		fmt.Fprintf(w, "; full checkpoint of step %d\n", s.Checkpoint)
	}
	if s.Stands != "" {
		fmt.Fprintf(w, "no step is taken: the run waits for %s\n", s.Stands)
	}
	if s.Failed != "" {
		fmt.Fprintf(w, "the newest save failed: %s\n", s.Failed)
	}
	if s.View != 0 {
		fmt.Fprintf(w, "view %d, line %d: %s\n", s.View, s.Line, s.Reason)
	}
	fmt.Fprintf(w, "coordinator: %s\n", cmp.Or(s.Coordinator, "nobody leads, so nobody that dies is replaced"))
	if s.Waits != "" {
		fmt.Fprintf(w, "it waits for the store: %s\n", s.Waits)
	}
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, x := range s.Servers {
		fmt.Fprintf(tab, "server/%d\t%s\t%s\n", x.Index, cmp.Or(x.Address, "-"), x.words())
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	names := []string{}
	for _, i := range s.Workers {
		names = append(names, fmt.Sprintf("worker/%d", i))
	}
	_, err := fmt.Fprintf(w, "%s there%s\n", counted(len(names), "worker is", "workers are"), strings.TrimSuffix(": "+abridged(names), ": "))
	if n := len(s.SpareServers); n > 0 && err == nil {
		_, err = fmt.Fprintf(w, "%s for a place, on %s\n", counted(n, "more server waits", "more servers wait"), abridged(s.SpareServers))
	}
	if n := len(s.SpareWorkers); n > 0 && err == nil {
		_, err = fmt.Fprintf(w, "%s for a place, on %s\n", counted(n, "more worker waits", "more workers wait"), abridged(s.SpareWorkers))
	}
	return err
}

// counted returns a number with the words for one or for several.
func counted(n int, one, several string) string {
	if n == 1 {
		several = one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// abridged joins names; if there are many, only the first ones and the last.
func abridged(names []string) string {
	const most = 8
	if n := len(names); n > most {
		return strings.Join(names[:most-1], ", ") + " … " + names[n-1]
	}
	return strings.Join(names, ", ")
}

// words describes what a server has and does.
func (x *serverStatus) words() string {
	var words []string
	say := func(yes bool, format string, args ...any) {
		if yes {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	say(x.Incarnation == 0, "is not there")
	say(x.Outside, "has a lease as incarnation %d, and the view goes on without it", x.Incarnation)
	say(x.Conducts, "conducts")
	say(len(x.Heads) > 0, "heads %s", shards(x.Heads))
	say(len(x.Follows) > 0, "has %s", shards(x.Follows))
	say(x.CatchesUp, "catches up")
	say(x.Leaving, "is about to go")
	say(len(x.NotReached) > 0, "does not reach %s", strings.Join(x.NotReached, ", "))
	if len(words) == 0 {
		return "is there"
	}
	return strings.Join(words, "; ")
}

func shards(ids []kintsugi.ShardID) string {
	var numbers []string
	for _, id := range ids {
		numbers = append(numbers, fmt.Sprint(id))
	}
	return "shard " + abridged(numbers)
}

// Holds reports whether a server holds a shard in a view.
func Holds(v kintsugi.View, id kintsugi.ServerID) bool {
	return slices.ContainsFunc(v.Chains, func(chain []kintsugi.ServerID) bool { return slices.Contains(chain, id) })
}
