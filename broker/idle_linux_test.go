package broker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"inflight/broker/packet"
)

// idleConnections is how many connections BenchmarkIdle opens.
const idleConnections = 10_000

// idleKind is what each of the idle connections is.
type idleKind struct {
	name      string
	version   packet.Version
	kept      bool
	subscribe bool
}

// BenchmarkIdle starts a real broker process on the staged store, opens 10,000 connections that then do nothing, and
// reports what they cost: the broker's resident memory, its peak while they came, and bytes per connection.
//
//	go test ./broker -run xxx -bench Idle -benchtime 1x
func BenchmarkIdle(b *testing.B) {
	if testing.Short() {
		b.Skip("opens 10,000 connections to a process of its own; run without -short")
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		b.Fatal(err)
	}
	if limit.Max < idleConnections+1000 {
		b.Skipf("a process may open %d files here, and %d connections take %d: raise the hard limit (ulimit -Hn)",
			limit.Max, idleConnections, idleConnections+1000)
	}
	limit.Cur = limit.Max // for this process; the Go runtime of the broker does the same
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		b.Fatal(err)
	}
	program := filepath.Join(b.TempDir(), "inflight")
	if out, err := exec.Command("go", "build", "-o", program, "inflight/cmd/inflight").CombinedOutput(); err != nil {
		b.Fatalf("build the broker: %v\n%s", err, out)
	}
	for _, k := range []idleKind{
		{"3.1.1", packet.V311, false, false},
		{"5.0/kept", packet.V5, true, false},
		{"5.0/subscribed", packet.V5, false, true},
		{"3.1.1/kept+subscribed", packet.V311, true, true},
	} {
		b.Run(k.name, func(b *testing.B) {
			for range b.N {
				p := startProcess(b, program)
				p.idle(b, k)
				p.stop(b)
			}
		})
	}
}

// process is a broker of its own.
type process struct {
	cmd  *exec.Cmd
	addr string
}

func startProcess(b *testing.B, program string) *process {
	b.Helper()
	cmd := exec.Command(program, "broker", "--store-dir", b.TempDir(), "--listen", "127.0.0.1:0", "--sys-interval", "0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill() })
	ready := regexp.MustCompile(`msg=ready mqtt=(\S+)`)
	var log strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		fmt.Fprintln(&log, lines.Text())
		if m := ready.FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, stderr) }()
			return &process{cmd: cmd, addr: m[1]}
		}
	}
	b.Fatalf("the broker ended before it was ready:\n%s", &log)
	return nil
}

func (p *process) stop(b *testing.B) {
	b.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
	_ = p.cmd.Wait()
}

// resident is what the process has in memory now, and had at most, in bytes.
func (p *process) resident(b *testing.B) (now, peak uint64) {
	b.Helper()
	proc, err := procfs.NewProc(p.cmd.Process.Pid)
	if err != nil {
		b.Fatal(err)
	}
	status, err := proc.NewStatus()
	if err != nil {
		b.Fatal(err)
	}
	return status.VmRSS, status.VmHWM
}

// idle opens the connections and reports what they cost.
func (p *process) idle(b *testing.B, k idleKind) {
	before, _ := p.resident(b)
	conns := make([]net.Conn, idleConnections)
	errs := make([]error, len(conns))
	next := make(chan int)
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for i := range next {
				conns[i], errs[i] = k.open(p.addr, i)
			}
		})
	}
	for i := range conns {
		next <- i
	}
	close(next)
	workers.Wait()
	defer func() {
		for _, nc := range conns {
			if nc != nil {
				_ = nc.Close()
			}
		}
	}()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	now, peak := p.settled(b)
	const mb = 1e6
	b.ReportMetric(float64(now)/mb, "MB")
	b.ReportMetric(float64(peak)/mb, "peak-MB")
	b.ReportMetric(float64(now-min(before, now))/idleConnections, "B/conn")
}

// settled waits until the resident memory does not change any more, ten seconds at most.
func (p *process) settled(b *testing.B) (now, peak uint64) {
	b.Helper()
	last, _ := p.resident(b)
	for range 10 {
		time.Sleep(time.Second)
		now, peak = p.resident(b)
		if max(now, last)-min(now, last) < 1<<20 {
			break
		}
		last = now
	}
	return now, peak
}

// open connects one client, and subscribes it if that is asked for.
func (k idleKind) open(addr string, i int) (net.Conn, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	connect := packet.Connect{ClientID: fmt.Sprintf("idle-%d", i), CleanSession: !k.kept, KeepAlive: 600}
	if k.kept && k.version == packet.V5 {
		connect.Properties = &packet.Properties{SessionExpiry: packet.Some[uint32](3600)}
	}
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	rd := packet.NewReader(nc, 64, 0)
	rd.SetVersion(k.version)
	if err := ask(nc, rd, k.version.AppendConnect(nil, &connect), packet.CONNACK); err != nil {
		return nc, fmt.Errorf("connection %d: %w", i, err)
	}
	if k.subscribe {
		s := packet.Subscribe{ID: 1, Subscriptions: []packet.Subscription{{Filter: fmt.Sprintf("idle/%d", i), QoS: 1}}}
		if err := ask(nc, rd, k.version.AppendSubscribe(nil, &s), packet.SUBACK); err != nil {
			return nc, fmt.Errorf("connection %d: %w", i, err)
		}
	}
	return nc, nc.SetDeadline(time.Time{})
}

// ask sends a packet and wants one of the given type.
func ask(nc net.Conn, rd *packet.Reader, b []byte, want packet.Type) error {
	if _, err := nc.Write(b); err != nil {
		return err
	}
	f, err := rd.Next()
	if err == nil && f.Type() != want {
		err = fmt.Errorf("got %v, want %v", f.Type(), want)
	}
	if err == nil && (want == packet.CONNACK && f.Body[1] != 0 || want == packet.SUBACK && f.Body[len(f.Body)-1] > 2) {
		err = fmt.Errorf("%v %x", want, f.Body)
	}
	return err
}
