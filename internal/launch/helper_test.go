package launch

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait of these tests. Only a failing test uses it up.
const patience = 20 * time.Second

// The processes of a cluster under test are this test binary. If helperEnv is set, it runs one of
// the helpers below instead of the tests.
const helperEnv = "LAUNCH_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "" {
		os.Exit(m.Run())
	}
	helpers := map[string]func(args []string) error{
		"serve":    serve,
		"stubborn": func(args []string) error { signal.Ignore(syscall.SIGINT); return serve(args) },
		"clinging": func(args []string) error { signal.Ignore(syscall.SIGTERM); return serve(args) },
		"leaving":  leave,
		"exit":     exitWith,
		"slack":    slack,
		"outlive":  outlive,
		"launch":   launchOthers,
	}
	if err := helpers[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve NAME SOCKET writes "NAME PID" to the socket, and then answers each line with the same line
// until it dies.
func serve(args []string) error {
	conn, err := net.Dial("unix", args[1])
	if err != nil {
		return err
	}
	fmt.Printf("%s serves\n", args[0])
	fmt.Fprintf(conn, "%s %d\n", args[0], os.Getpid())
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if lines.Text() == "finish" {
			return nil
		}
		fmt.Fprintln(conn, lines.Text())
	}
	select {} // the test is over; wait to be killed
}

// leave NAME SOCKET serves until SIGTERM, and asks to be started again.
func leave(args []string) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	go func() {
		<-asked
		os.Exit(exitPreempted)
	}()
	return serve(args)
}

// exitWith STATUS LINE prints the line and ends.
func exitWith(args []string) error {
	status, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, args[1])
	os.Exit(status)
	return nil
}

// slack prints by how many nanoseconds it may be woken too late, and ends with the status of a
// wrong flag.
func slack([]string) error {
	ns, err := os.ReadFile("/proc/self/timerslack_ns")
	if err != nil {
		return err
	}
	return exitWith([]string{"2", "slack " + strings.TrimSpace(string(ns))})
}

// launchOthers SOCKET LOGS is a launcher of three processes.
func launchOthers(args []string) error {
	c, err := New(Config{Logs: args[1]})
	if err != nil {
		return err
	}
	for _, part := range []Part{{Role: Coordinator}, {Server, 0}, {Worker, 0}} {
		if err := c.Start(Spec{Part: part, Args: []string{"serve", part.String(), args[0]}}); err != nil {
			return err
		}
	}
	return serve([]string{"launcher", args[0]})
}

// meeting is where helpers report. A connection ends exactly when its process does. Process numbers
// do not tell that, since dead processes keep theirs until they are waited for.
type meeting struct {
	t      *testing.T
	socket string
	l      net.Listener
}

func newMeeting(t *testing.T) *meeting {
	t.Setenv(helperEnv, "1")
	dir, err := os.MkdirTemp("", "launch") // t.TempDir can be too long for the name of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &meeting{t: t, socket: filepath.Join(dir, "s")}
	if m.l, err = net.Listen("unix", m.socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.l.Close() })
	return m
}

func (m *meeting) spec(part Part, helper string) Spec {
	return Spec{Part: part, Args: []string{helper, part.String(), m.socket}}
}

// guest is a helper that has reported.
type guest struct {
	t    *testing.T
	name string
	pid  int
	conn net.Conn
	in   *bufio.Reader
}

func (m *meeting) next() *guest {
	m.t.Helper()
	m.l.(*net.UnixListener).SetDeadline(time.Now().Add(patience))
	conn, err := m.l.Accept()
	if err != nil {
		m.t.Fatalf("no process reported: %v", err)
	}
	m.t.Cleanup(func() { conn.Close() })
	g := &guest{t: m.t, conn: conn, in: bufio.NewReader(conn)}
	conn.SetReadDeadline(time.Now().Add(patience))
	line, err := g.in.ReadString('\n')
	if err != nil {
		m.t.Fatalf("a process reported and fell silent: %v", err)
	}
	if _, err := fmt.Sscanf(strings.TrimSpace(line), "%s %d", &g.name, &g.pid); err != nil {
		m.t.Fatalf("report %q: %v", line, err)
	}
	return g
}

// dies waits until the process is gone.
func (g *guest) dies() {
	g.t.Helper()
	g.conn.SetReadDeadline(time.Now().Add(patience))
	if line, err := g.in.ReadString('\n'); err == nil || os.IsTimeout(err) {
		g.t.Fatalf("%s lives on: read %q, %v", g.name, line, err)
	}
}

// answers checks that the process is alive and awake.
func (g *guest) answers() {
	g.t.Helper()
	fmt.Fprintln(g.conn, "hello")
	g.conn.SetReadDeadline(time.Now().Add(patience))
	if line, err := g.in.ReadString('\n'); err != nil || line != "hello\n" {
		g.t.Fatalf("%s answered %q, %v", g.name, line, err)
	}
}

// cluster returns a cluster that is stopped with the test, and the events of its processes.
func (m *meeting) cluster(cfg Config) (*Cluster, chan ProcessEvent) {
	m.t.Helper()
	events := make(chan ProcessEvent, 1000) // more than any test makes, so that no sender waits for a reader
	cfg.Logs = filepath.Join(m.t.TempDir(), "logs")
	cfg.Observe = func(e ProcessEvent) { events <- e }
	c, err := New(cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			m.t.Error(err)
		}
	})
	return c, events
}

// await returns the next event of the kind.
func await(t *testing.T, events chan ProcessEvent, kind ProcessEventKind) ProcessEvent {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e := <-events:
			if e.Kind == kind {
				return e
			}
		case <-timeout:
			t.Fatalf("no process was %s", kind)
		}
	}
}
