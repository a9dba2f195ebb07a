package recovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/recovery/roster"
)

// Newest returns the newest full checkpoint that can be restored: the name of its run manifest, its
// step, and the greatest line on which anything was saved, damaged or unfinished as it may be: the
// line to come is greater. An empty name without an error means that there is none. It may take as
// long as reading a checkpoint does; ctx ends when the coordinator leads no more.
//
// asks is the run that asks. Where it begins, it takes the place of the checkpoints from whatever
// run had it; later it only goes on while it has that place.
type Newest func(ctx context.Context, asks Asking) (manifest string, step kintsugi.Step, line kintsugi.Line, err error)

// Asking is a run that asks for its newest checkpoint.
type Asking struct {
	Run    string // its id: kintsugi.View.Run
	Begins bool   // no view of it counts yet
}

// NoCheckpoints is the Newest of a run that saves none.
func NoCheckpoints(context.Context, Asking) (string, kintsugi.Step, kintsugi.Line, error) {
	return "", 0, 0, nil
}

// Config tunes a Coordinator. Zero fields mean the defaults given here.
type Config struct {
	// Etcd reaches the run's keys. It stays the caller's, who closes it after Run.
	Etcd *etcd.Client

	// ID names this coordinator to whoever looks into etcd. Default: host and process.
	ID string

	// Roster says what the run wants of its servers, and what its first view starts from.
	Roster roster.Config

	// Terms are those of the run: servers with others are not taken in, and a view that has others
	// is not followed by one of this coordinator. Default: nobody is asked.
	Terms kintsugi.Terms

	// Newest finds the checkpoint that a new line starts from. Required: say NoCheckpoints for a run that
	// saves none, since forgetting it would throw every step away at the first failure.
	Newest Newest

	// Lease is how long after its death a coordinator that leads is replaced by the next. It is rounded up
	// to whole seconds. Default 5 s, a guess: training goes on meanwhile.
	Lease time.Duration

	// Retry is the pause before the store or etcd is asked again. Default 1 s.
	Retry time.Duration

	// Patience bounds one question to etcd. Default 30 s. Newest has no such bound: how long it
	// takes is a matter of the checkpoint's size, and one that is cut off would begin again for
	// ever.
	Patience time.Duration

	// Slow is after how long the run is told that the newest checkpoint is still looked for. Default 5 s.
	Slow time.Duration

	// TLS is how this coordinator and servers prove to each other who they are. Default: they do
	// not, and connections are plain TCP.
	TLS *mtls.Credentials

	// Log receives each decision with its reason, once. Default: nothing is logged.
	Log *slog.Logger
}

// Coordinator decides on the views of a run as long as it leads.
type Coordinator struct {
	cfg    Config
	reason string // logged last
}

// NewCoordinator returns a coordinator that does nothing before Run. Settings that make no sense are an ErrUsage.
func NewCoordinator(cfg Config) (*Coordinator, error) {
	if cfg.Etcd == nil || cfg.Newest == nil {
		return nil, fmt.Errorf("%w: a coordinator needs an etcd and a way to find checkpoints", kintsugi.ErrUsage)
	}
	if _, err := roster.New(cfg.Roster); err != nil {
		return nil, err
	}
	if cfg.ID == "" {
		host, _ := os.Hostname()
		cfg.ID = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	setDefault(&cfg.Lease, 5*time.Second)
	setDefault(&cfg.Retry, time.Second)
	setDefault(&cfg.Patience, 30*time.Second)
	setDefault(&cfg.Slow, 5*time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return &Coordinator{cfg: cfg}, nil
}

func setDefault(d *time.Duration, to time.Duration) {
	if *d <= 0 {
		*d = to
	}
}

// Run campaigns, leads, and campaigns again when the leadership is lost, until ctx ends: nothing that
// happens to etcd, to the store or to servers ends it before. It returns nil, and the next coordinator leads
// at once. Call it once.
func (c *Coordinator) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		lead, err := c.cfg.Etcd.Campaign(ctx, c.cfg.ID, c.cfg.Lease)
		if err != nil {
			c.trouble(ctx, err)
			c.rest(ctx)
			continue
		}
		c.cfg.Log.Info("this coordinator leads", "id", c.cfg.ID)
		err = c.lead(ctx, lead)
		if bye := lead.Resign(); err == nil {
			err = bye
		}
		if err != nil {
			c.trouble(ctx, err)
			c.rest(ctx)
		}
	}
	return nil
}

// trouble logs an error once as long as it is the same; the end of the run is none.
func (c *Coordinator) trouble(ctx context.Context, err error) {
	if ctx.Err() == nil {
		c.say(slog.LevelWarn, err.Error())
	}
}

// say logs a reason, unless it was the last that was logged.
func (c *Coordinator) say(level slog.Level, reason string, args ...any) {
	if reason != c.reason {
		c.reason = reason
		c.cfg.Log.Log(context.Background(), level, reason, args...)
	}
}

// rest waits for the pause before another attempt, or for the end of ctx.
func (c *Coordinator) rest(ctx context.Context) { rest(ctx, c.cfg.Retry) }

// tenure is what a coordinator knows while it leads. Its loop owns it.
type tenure struct {
	*Coordinator
	lead    *etcd.Leadership
	state   *roster.State
	present map[uint32]etcd.Member
	dead    map[uint32]kintsugi.Incarnation // lives whose pulses are not felt
	pulses  *pulses                         // of who is present; nil: leases say enough
	view    *kintsugi.View                  // that counts
	run     string                          // id of the run, for the view to come; empty: not known yet
	told    string                          // what the run was told last that this coordinator waits for; untold: nobody knows
}

// untold is no word.
const untold = "?"

// errLost means that somebody else may lead by now.
var errLost = errors.New("the leadership was lost: campaigning again")

// lead decides until ctx ends or the leadership is lost. The state begins anew with each leadership, from
// what etcd holds: what the one before remembered may be old.
func (c *Coordinator) lead(ctx context.Context, lead *etcd.Leadership) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	state, err := roster.New(c.cfg.Roster)
	if err != nil {
		return err
	}
	t := &tenure{Coordinator: c, lead: lead, state: state, present: make(map[uint32]etcd.Member), dead: make(map[uint32]kintsugi.Incarnation), told: untold}
	var signs chan sign // nil: none ever come
	if c.cfg.Roster.Replicas > 1 || c.cfg.Roster.Chooses {
		t.pulses = newPulses(c.cfg.TLS)
		defer t.pulses.close()
		signs = t.pulses.signs
	}
	if err := t.readView(ctx); err != nil {
		return err
	}
	t.tell(ctx, "") // whatever the one before waited for
	members := c.cfg.Etcd.WatchMembers(ctx, etcd.Server)
	select { // who is present must be known before the first decision, or everybody would seem away
	case <-ctx.Done():
		return nil
	case <-lead.Lost():
		return errLost
	case ms := <-members:
		t.note(ctx, ms)
	}
	for {
		again, err := t.decide(ctx)
		if err != nil {
			return err
		}
		var timer <-chan time.Time // nil: only an event brings a new decision
		if again > 0 {
			timer = time.After(again)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-lead.Lost():
			return errLost
		case <-timer:
		case ms, ok := <-members:
			if !ok {
				return nil // ctx has ended
			}
			t.note(ctx, ms)
		case s := <-signs:
			t.felt(s)
		}
	}
}

// readView tells the state which view counts.
func (t *tenure) readView(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Patience)
	defer cancel()
	v, at, err := t.cfg.Etcd.View(ctx)
	if err != nil {
		return err
	}
	if v != nil {
		if err := t.cfg.Terms.Agree("this coordinator", v.Terms, fmt.Sprintf("the one that put view %d", v.Number)); err != nil {
			return fmt.Errorf("%w, or give another run a --run of its own", err)
		}
	}
	if t.view = v; v != nil {
		t.run = v.Run
	}
	t.state.Handle(time.Now(), roster.Viewed{View: v, At: int64(at)})
	return nil
}

// note tells the state what has changed among the servers.
func (t *tenure) note(ctx context.Context, ms []etcd.Member) {
	now := time.Now()
	left := t.present
	t.present = make(map[uint32]etcd.Member, len(ms))
	for _, m := range ms {
		was, known := left[m.Index]
		delete(left, m.Index)
		t.present[m.Index] = m
		if known && was.Incarnation == m.Incarnation && was.Since == m.Since && bytes.Equal(was.Value, m.Value) {
			continue
		}
		j, err := t.joined(m)
		if err != nil {
			// Its place counts as empty: nobody could reach it, or work with it.
			t.cfg.Log.Warn("a server cannot be taken in", "server", m.String(), "err", err)
			t.state.Handle(now, roster.Left{Server: kintsugi.ServerID(m.Index)})
			continue
		}
		if t.dead[m.Index] == m.Incarnation {
			continue // it reaches etcd, and nobody else: what it says counts when its pulse is felt again
		}
		t.state.Handle(now, j)
		t.want(now, m)
		if t.pulses != nil {
			t.pulses.feel(ctx, j)
		}
	}
	for index := range left {
		delete(t.dead, index)
		t.state.Handle(now, roster.Left{Server: kintsugi.ServerID(index)})
		if t.pulses != nil {
			t.pulses.end(kintsugi.ServerID(index))
		}
	}
}

// want tells the state what the conductor wants, where the run chooses for itself.
func (t *tenure) want(now time.Time, m etcd.Member) {
	var v struct {
		Wants *struct {
			Replicas int    `json:"replicas"`
			Why      string `json:"why"`
		} `json:"wants"`
	}
	if t.view != nil && m.Index == uint32(t.view.Conductor) && json.Unmarshal(m.Value, &v) == nil && v.Wants != nil {
		t.state.Handle(now, roster.Wanted{Replicas: v.Wants.Replicas, Why: v.Wants.Why})
	}
}

// felt tells the state what the pulse of a server has changed to, if it is of its present life.
func (t *tenure) felt(s sign) {
	m, ok := t.present[uint32(s.server)]
	if !ok || m.Incarnation != s.life {
		return
	}
	if !s.alive {
		t.dead[m.Index] = s.life
		t.state.Handle(time.Now(), roster.Died{Server: s.server, Incarnation: s.life})
		return
	}
	delete(t.dead, m.Index)
	if j, err := t.joined(m); err == nil {
		t.state.Handle(time.Now(), j)
	}
}

// joined returns what a registration says to the roster.
func (t *tenure) joined(m etcd.Member) (roster.Joined, error) {
	var v struct {
		Terms   kintsugi.Terms      `json:"terms"`
		Address string              `json:"address"`
		Holds   kintsugi.Line       `json:"holds"`
		Whole   kintsugi.ViewNumber `json:"whole"`
		Leaving bool                `json:"leaving"`
		Apart   []kintsugi.Life     `json:"apart"`
	}
	j := roster.Joined{Member: kintsugi.Member{Server: kintsugi.ServerID(m.Index), Incarnation: m.Incarnation}, Since: int64(m.Since)}
	if err := json.Unmarshal(m.Value, &v); err != nil {
		return j, err
	}
	if v.Address == "" {
		return j, errors.New(`its value has no "address"`)
	}
	if err := v.Terms.Agree("it", t.cfg.Terms, "this coordinator"); err != nil {
		return j, fmt.Errorf("%s: %w", v.Address, err)
	}
	j.Member.Address, j.Holds, j.Whole, j.Leaving, j.Apart = v.Address, v.Holds, v.Whole, v.Leaving, v.Apart
	return j, nil
}

// decide carries out what the state decides. It returns after which time to decide again, 0 for only after an
// event, or an error when the leadership is over.
func (t *tenure) decide(ctx context.Context) (again time.Duration, err error) {
	now := time.Now()
	d := t.state.Decide(now)
	if d.Ask {
		found, err := t.lookUp(ctx, d)
		if err != nil {
			err = fmt.Errorf("%s: %w", d.Reason, err)
			t.trouble(ctx, err)
			t.tell(ctx, err.Error())
			return t.cfg.Retry, nil
		}
		t.tell(ctx, "")
		t.state.Handle(now, found)
		d = t.state.Decide(now)
	}
	if d.View == nil {
		t.say(slog.LevelInfo, d.Reason)
		if !d.Again.IsZero() {
			again = max(time.Until(d.Again), time.Millisecond)
		}
		return again, nil
	}
	return t.put(ctx, *d.View)
}

// tell tells the run what this coordinator waits for, in words; empty: nothing. They are for
// people: nothing fails where etcd does not take them.
func (t *tenure) tell(ctx context.Context, waits string) {
	if waits == t.told {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Patience)
	defer cancel()
	t.told = untold
	if t.lead.PutWaits(ctx, waits) == nil {
		t.told = waits
	}
}

// lookUp asks what a new view must know. The fence is taken last, so that it is the newest of all.
func (t *tenure) lookUp(ctx context.Context, d roster.Decision) (found roster.Found, err error) {
	if found.FenceOnly = d.FenceOnly; !d.FenceOnly {
		if found.Newest, err = t.newest(ctx, d.Reason); err != nil {
			return found, fmt.Errorf("find the newest checkpoint: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Patience)
	defer cancel()
	if t.view != nil {
		found.Fence = t.view.Fence
	}
	found.Fence, err = t.cfg.Etcd.NextFence(ctx, found.Fence)
	return found, err
}

// newest asks for the newest checkpoint, until it is known or somebody else leads. Where that takes
// long the run is told why it is asked for.
func (t *tenure) newest(ctx context.Context, why string) (n roster.Checkpoint, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil) // before Wait
	watching.Go(func() {
		for slow := time.After(t.cfg.Slow); ; {
			select {
			case <-t.lead.Lost():
				cancel(errLost)
				return
			case <-ctx.Done():
				return
			case <-slow:
				if t.told == "" || t.told == untold { // the word of a try that failed says more
					t.tell(ctx, why)
				}
				if t.told == untold { // etcd has not taken it, or not that the one before is over
					slow = time.After(t.cfg.Slow)
				}
			}
		}
	})
	if t.run == "" { // before it takes a place by it: another coordinator that does must have the same
		bounded, stop := context.WithTimeout(ctx, t.cfg.Patience)
		t.run, err = t.cfg.Etcd.ID(bounded)
		if stop(); err != nil {
			return n, err
		}
	}
	n.Manifest, n.Step, n.Line, err = t.cfg.Newest(ctx, Asking{Run: t.run, Begins: t.view == nil || t.view.Run != t.run})
	return n, err
}

// put makes v the view that counts.
func (t *tenure) put(ctx context.Context, v kintsugi.View) (again time.Duration, err error) {
	var previous kintsugi.ViewNumber
	if t.view != nil {
		previous = t.view.Number
	}
	v.Terms, v.Run = t.cfg.Terms, t.run
	bounded, cancel := context.WithTimeout(ctx, t.cfg.Patience)
	defer cancel()
	at, err := t.lead.PutView(bounded, previous, v)
	if err != nil {
		// Whether the answer was lost or somebody was faster: etcd knows which view counts. If it is
		// another coordinator's, Lost says so, too, and this one cannot put anything any more.
		t.trouble(ctx, err)
		if err := t.readView(ctx); err != nil {
			t.trouble(ctx, err)
		}
		return t.cfg.Retry, nil
	}
	t.view = &v
	t.state.Handle(time.Now(), roster.Viewed{View: &v, At: int64(at)})
	t.say(slog.LevelInfo, v.Reason, "view", v.Number, "line", v.Line, "fence", v.Fence, "restore", v.Restore)
	return time.Nanosecond, nil // to say that it stands, and to see who has come and gone since
}
