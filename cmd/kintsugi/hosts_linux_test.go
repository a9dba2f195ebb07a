package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kintsugi-ml/kintsugi/internal/etcd"
)

// hosts are network namespaces with one interface each. Their packets go to a switch in this
// process, which forwards or drops them. So a link can be cut in one direction only.
type hosts struct {
	list []*host

	mu   sync.Mutex
	cut  map[[2]int]bool // packets from one host to the other are dropped
	loss float64         // the share of all other packets that is dropped
	rng  *rand.Rand

	delay time.Duration            // how long a packet is on its way
	more  map[[2]int]time.Duration // from one host to the other, in addition
}

// host is one of the hosts. Whatever happens in its namespace is done by a goroutine that is locked
// to a thread there.
type host struct {
	number int
	do     chan func()
	tun    *os.File
}

const interfaceBytes = 9000

// deadProxy is where the environment of all hosts says that a web proxy is, and none is.
const deadProxy = "http://10.77.0.250:3128"

// newHosts starts n hosts, which end with the test. A packet from one to another takes delay, and
// whatever a busy machine adds. If the kernel does not allow it, the test is skipped.
func newHosts(t testing.TB, n int, delay time.Duration) *hosts {
	t.Helper()
	all := &hosts{cut: make(map[[2]int]bool), rng: rand.New(rand.NewPCG(1, 1)), delay: delay, more: make(map[[2]int]time.Duration)}
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	for i := range n {
		h := &host{number: i, do: make(chan func())}
		ready := make(chan error, 1)
		wg.Go(func() { h.run(ready) })
		if err := <-ready; err != nil {
			t.Skipf("no network namespaces here: %v; run it as root, or under unshare -Urn, with /dev/net/tun", err)
		}
		t.Cleanup(func() {
			close(h.do)
			_ = h.tun.Close()
		})
		all.list = append(all.list, h)
	}
	for _, h := range all.list {
		wg.Go(func() { all.carry(h) })
	}
	return all
}

// run enters a new namespace and carries out what it is sent. It keeps its thread, which ends with
// it, and the processes that it started end with the thread.
func (h *host) run(ready chan<- error) {
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_NEWNET)
	if err == nil {
		err = h.connect()
	}
	if ready <- err; err != nil {
		return
	}
	for f := range h.do {
		f()
	}
}

// connect makes the network interface of a host.
func (h *host) connect() error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open /dev/net/tun: %w", err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	defer unix.Close(s)
	set := func(fd int, request uint, name string, value func(*unix.Ifreq) error) error {
		r, err := unix.NewIfreq(name)
		if err == nil {
			err = value(r)
		}
		if err == nil {
			err = unix.IoctlIfreq(fd, request, r)
		}
		if err != nil {
			return fmt.Errorf("set up %s: %w", name, err)
		}
		return nil
	}
	number := func(x uint16) func(*unix.Ifreq) error {
		return func(r *unix.Ifreq) error { r.SetUint16(x); return nil }
	}
	address := func(x ...byte) func(*unix.Ifreq) error {
		return func(r *unix.Ifreq) error { return r.SetInet4Addr(x) }
	}
	const name = "kin0"
	for _, err := range []error{
		set(fd, unix.TUNSETIFF, name, number(unix.IFF_TUN|unix.IFF_NO_PI)),
		set(s, unix.SIOCSIFADDR, name, address(10, 77, 0, byte(h.number+1))),
		set(s, unix.SIOCSIFNETMASK, name, address(255, 255, 255, 0)),
		set(s, unix.SIOCSIFMTU, name, func(r *unix.Ifreq) error { r.SetUint32(interfaceBytes); return nil }),
		set(s, unix.SIOCSIFFLAGS, name, number(unix.IFF_UP)),
		set(s, unix.SIOCSIFFLAGS, "lo", number(unix.IFF_UP)),
	} {
		if err != nil {
			return errors.Join(err, unix.Close(fd))
		}
	}
	h.tun = os.NewFile(uintptr(fd), "/dev/net/tun") // only now: before, the poller would take it for broken
	return nil
}

// underWay is a packet on its way to a host.
type underWay struct {
	to     *host
	packet []byte
	due    time.Time
}

// carry forwards the packets of a host.
func (all *hosts) carry(from *host) {
	packet := make([]byte, interfaceBytes)
	way := make(chan underWay, 1<<14)
	var arrive sync.WaitGroup
	arrive.Go(func() {
		for x := range way {
			<-time.After(time.Until(x.due)) // this is the network: nobody waits for it here
			_, _ = x.to.tun.Write(x.packet)
		}
	})
	defer arrive.Wait()
	defer close(way)
	for {
		n, err := from.tun.Read(packet)
		if err != nil {
			return // the interface is closed
		}
		if n < 20 || packet[0]>>4 != 4 { // not IPv4
			continue
		}
		to := int(packet[19]) - 1
		if to < 0 || to >= len(all.list) || all.loses(from.number, to) {
			continue
		}
		if delay := all.takes(from.number, to); delay > 0 {
			way <- underWay{all.list[to], slices.Clone(packet[:n]), time.Now().Add(delay)}
			continue
		}
		_, _ = all.list[to].tun.Write(packet[:n]) // if its queue is full, the packet is lost, as on any network
	}
}

func (all *hosts) loses(from, to int) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.cut[[2]int{from, to}] || all.rng.Float64() < all.loss
}

// takes returns how long a packet is on its way from one host to the other.
func (all *hosts) takes(from, to int) time.Duration {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.delay + all.more[[2]int{from, to}]
}

// far makes packets between two hosts take longer.
func (all *hosts) far(a, b int, more time.Duration) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.more[[2]int{a, b}], all.more[[2]int{b, a}] = more, more
}

// isolate cuts a host off. If mute, nobody receives from it; if deaf, it receives from nobody.
func (all *hosts) isolate(n int, mute, deaf bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, h := range all.list {
		all.cut[[2]int{n, h.number}] = mute
		all.cut[[2]int{h.number, n}] = deaf
	}
}

// part cuts two hosts off from each other, or connects them again. All others reach both.
func (all *hosts) part(a, b int, apart bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.cut[[2]int{a, b}], all.cut[[2]int{b, a}] = apart, apart
}

// lose makes the switch drop a share of all packets.
func (all *hosts) lose(share float64) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.loss = share
}

func (h *host) address() string { return fmt.Sprintf("10.77.0.%d", h.number+1) }

// in runs f in the namespace of the host.
func in[T any](h *host, f func() (T, error)) (x T, err error) {
	done := make(chan struct{})
	h.do <- func() {
		defer close(done)
		x, err = f()
	}
	<-done
	return x, err
}

// start keeps a kintsugi running on the host until the test ends. Its output goes to the file log.
// kill ends the process that runs, and the next one starts after a while.
func (h *host) start(t testing.TB, log string, args ...string) (kill func(down time.Duration)) {
	t.Helper()
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	stop, ended, die := make(chan struct{}), make(chan struct{}), make(chan time.Duration)
	go func() {
		defer close(ended)
		defer file.Close()
		for {
			cmd, err := in(h, func() (*exec.Cmd, error) {
				cmd := exec.Command("/proc/self/exe", args...)
				cmd.Args[0], cmd.Stdout, cmd.Stderr = "kintsugi", file, file
				cmd.Env = append(os.Environ(), beKintsugi+"=1", "XDG_RUNTIME_DIR="+filepath.Join(filepath.Dir(log), fmt.Sprintf("host-%d", h.number)),
					"HTTP_PROXY="+deadProxy, "HTTPS_PROXY="+deadProxy, "NO_PROXY=") // what a run connects to is not reached through a web proxy
				// Processes that share memory or pipes find each other by their process ids. In
				// namespaces of their own, they do not find each other, as on different machines.
				cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWPID}
				return cmd, cmd.Start()
			})
			if err != nil {
				t.Errorf("start %v: %v", args, err)
				return
			}
			dead := make(chan struct{})
			go func() {
				_ = cmd.Wait()
				close(dead)
			}()
			select {
			case down := <-die:
				_ = cmd.Process.Kill()
				<-dead
				select {
				case <-time.After(down):
				case <-stop:
					return
				}
			case <-dead:
				if cmd.ProcessState.Success() {
					return
				}
			case <-stop:
				_ = cmd.Process.Kill()
				<-dead
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-ended
	})
	return func(down time.Duration) { die <- down }
}

// serve forwards connections to a port of the host to an address of this process's own network.
func (h *host) serve(t testing.TB, port int, to string) {
	t.Helper()
	lis, err := in(h, func() (net.Listener, error) { return net.Listen("tcp4", fmt.Sprintf("%s:%d", h.address(), port)) })
	if err != nil {
		t.Fatal(err)
	}
	forward(t, lis, func() (net.Conn, error) { return net.Dial("tcp4", to) })
}

// etcd starts an etcd that the hosts reach at an address of this one, and returns that address and a
// client of a run in it.
func (h *host) etcd(t testing.TB, run string) (address string, client *etcd.Client) {
	t.Helper()
	e, err := etcd.Embed(t.Context(), t.TempDir(), etcd.Options{UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	const port = 2379
	h.serve(t, port, e.Endpoint())
	if client, err = etcd.Dial(t.Context(), []string{e.Endpoint()}, run); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return fmt.Sprintf("%s:%d", h.address(), port), client
}

// reach returns an address in this process's own network that leads to an address as the host sees
// it.
func (h *host) reach(t testing.TB, address string) string {
	t.Helper()
	lis, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	forward(t, lis, func() (net.Conn, error) {
		return in(h, func() (net.Conn, error) { return net.Dial("tcp4", address) })
	})
	return lis.Addr().String()
}

// forward joins each connection that lis accepts with one that dial makes, until the test ends.
func forward(t testing.TB, lis net.Listener, dial func() (net.Conn, error)) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			a, err := lis.Accept()
			if err != nil {
				return
			}
			b, err := dial()
			if err != nil {
				_ = a.Close()
				continue
			}
			mu.Lock()
			open = append(open, a, b)
			mu.Unlock()
			for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
				wg.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
					_ = way[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = lis.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
}
