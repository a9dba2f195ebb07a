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
// step, and the greatest line on which anything was saved, even if that is damaged or unfinished,
// because the next line must be greater. An empty name without an error means that there is no
// checkpoint. It may take as long as reading a checkpoint; ctx ends when the coordinator does not
// lead any more.
//
// asks is the run that asks. If it begins, Newest gives it the place of the checkpoints, whatever
// run had that before. Later, Newest succeeds only while the run has that place.
type Newest func(ctx context.Context, asks Asking) (manifest string, step kintsugi.Step, line kintsugi.Line, err error)

// Asking is a run that asks for its newest checkpoint.
type Asking struct {
	Run    string // its id: kintsugi.View.Run
	Begins bool   // no view of it has been put yet
}

// NoCheckpoints is the Newest of a run that saves none.
func NoCheckpoints(context.Context, Asking) (string, kintsugi.Step, kintsugi.Line, error) {
	return "", 0, 0, nil
}

// Config configures a Coordinator. Zero fields mean the defaults given here.
type Config struct {
	// Etcd gives access to the run's keys. The caller still owns it, and closes it after Run.
	Etcd *etcd.Client

	// ID is the name of this coordinator in etcd, for people who look there. Default: host and
	// process.
	ID string

	// Gone reports whether the coordinator with an ID is known to be dead. Nobody waits for the lease
	// of one that is. Default: that is known of none.
	Gone func(id string) bool

	// Roster says which servers the run needs, and what its first view starts from.
	Roster roster.Config

	// Terms are the terms of the run. A server with other terms is not taken in, and a coordinator
	// does not continue a view that has other terms. Default: terms are not compared.
	Terms kintsugi.Terms

	// Newest finds the checkpoint that a new line starts from. Required: a run that saves none must
	// say NoCheckpoints, since a forgotten Newest would lose every step at the first failure.
	Newest Newest

	// Lease is how long after the death of the leading coordinator the next one takes over. It is
	// rounded up to whole seconds. Default 5 s, a guess: training goes on meanwhile.
	Lease time.Duration

	// Retry is the pause before the store or etcd is asked again. Default 1 s.
	Retry time.Duration

	// Patience bounds one request to etcd. Default 30 s. Newest has no such bound: its duration
	// depends on the size of the checkpoint, and a search that is cut off would begin again for
	// ever.
	Patience time.Duration

	// Slow is how long the search for the newest checkpoint takes before the run is told about it.
	// Default 5 s.
	Slow time.Duration

	// TLS is how this coordinator and servers prove to each other who they are. Default: they do
	// not, and connections are plain TCP.
	TLS *mtls.Credentials

	// Log receives each decision once, with its reason. Default: nothing is logged.
	Log *slog.Logger
}

// Coordinator decides the views of a run while it leads.
type Coordinator struct {
	cfg    Config
	reason string // the reason that was logged last
}

// NewCoordinator returns a coordinator, which does nothing before Run. Settings that make no sense
// are an ErrUsage.
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

// Run campaigns, leads, and campaigns again when it has lost the leadership, until ctx ends. No
// failure of etcd, of the store or of servers ends it before. It then returns nil, and the next
// coordinator leads at once. Call it once.
func (c *Coordinator) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		c.depose(ctx)
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

// depose makes way for the next leader if the one before is known to be dead.
func (c *Coordinator) depose(ctx context.Context) {
	if c.cfg.Gone == nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, c.cfg.Patience)
	defer cancel()
	err := c.cfg.Etcd.Depose(bounded, func(id string) bool {
		gone := id != c.cfg.ID && c.cfg.Gone(id)
		if gone {
			c.cfg.Log.Info("a coordinator is dead, and leads no more", "id", id)
		}
		return gone
	})
	if err != nil {
		c.trouble(ctx, err)
	}
}

// trouble logs an error unless it is the one that was logged last. It logs nothing if ctx has
// ended.
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
	dead    map[uint32]kintsugi.Incarnation // lives whose pulses have stopped
	pulses  *pulses                         // of the servers that are present; nil: leases are enough
	view    *kintsugi.View                  // the newest view
	run     string                          // id of the run, for the next view; empty: not known yet
	told    string                          // what the run was told last that this coordinator waits for; untold: not known
}

// untold is a text that no coordinator tells.
const untold = "?"

// errLost means that another coordinator may lead by now.
var errLost = errors.New("the leadership was lost: campaigning again")

// lead decides until ctx ends or the leadership is lost. Each leadership begins with a new state,
// from what etcd holds, because what the one before remembered may be old.
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
	t.tell(ctx, "") // whatever the coordinator before waited for
	members := c.cfg.Etcd.WatchMembers(ctx, etcd.Server)
	// The first decision needs the servers that are present; otherwise all would seem away.
	select {
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

// readView reads the newest view from etcd and tells the state.
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
			// Its place counts as empty, because nobody could reach it or work with it.
			t.cfg.Log.Warn("a server cannot be taken in", "server", m.String(), "err", err)
			t.state.Handle(now, roster.Left{Server: kintsugi.ServerID(m.Index)})
			continue
		}
		if t.dead[m.Index] == m.Incarnation {
			// It reaches etcd, and nobody else. What it says counts when its pulse is felt again.
			continue
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

// want tells the state how many replicas the conductor wants, in a run that chooses them itself.
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

// felt tells the state how the pulse of a server has changed, if the sign is of its present life.
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

// joined converts a registration for the roster. It returns an error if the registration cannot be
// used.
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

// decide carries out what the state decides. It returns the time after which to decide again, or 0
// if only an event brings a new decision. An error means that the leadership is over.
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

// tell tells the run in words what this coordinator waits for; empty: nothing. The text is for
// people, so nothing fails if etcd does not take it.
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

// lookUp finds out what a new view needs. It takes the fence last, so that it is the newest of all.
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

// newest looks for the newest checkpoint, until it is known or another coordinator leads. If that
// takes long, the run is told why it is needed.
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
				if t.told == "" || t.told == untold { // the text of a try that failed says more
					t.tell(ctx, why)
				}
				if t.told == untold { // etcd has not taken this text, or has not cleared the one before
					slow = time.After(t.cfg.Slow)
				}
			}
		}
	})
	// The id comes before the place in the store: another coordinator that takes that must have the
	// same id.
	if t.run == "" {
		bounded, stop := context.WithTimeout(ctx, t.cfg.Patience)
		t.run, err = t.cfg.Etcd.ID(bounded)
		if stop(); err != nil {
			return n, err
		}
	}
	n.Manifest, n.Step, n.Line, err = t.cfg.Newest(ctx, Asking{Run: t.run, Begins: t.view == nil || t.view.Run != t.run})
	return n, err
}

// put makes v the newest view.
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
		// Either the answer was lost, or another coordinator was faster; etcd has the newest view.
		// If that is of another coordinator, Lost reports it too, and this one cannot put a view
		// any more.
		t.trouble(ctx, err)
		if err := t.readView(ctx); err != nil {
			t.trouble(ctx, err)
		}
		return t.cfg.Retry, nil
	}
	t.view = &v
	t.state.Handle(time.Now(), roster.Viewed{View: &v, At: int64(at)})
	t.say(slog.LevelInfo, v.Reason, "view", v.Number, "line", v.Line, "fence", v.Fence, "restore", v.Restore)
	// At once, to log that the view stands, and to see who has come and gone since.
	return time.Nanosecond, nil
}
