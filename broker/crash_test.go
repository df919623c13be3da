package broker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inflight/broker/packet"
)

// brokerProcess is one `inflight broker`, started again and again with the same directory and the same ports.
type brokerProcess struct {
	t    *testing.T
	args []string
	addr string
	cmd  *exec.Cmd
	log  bytes.Buffer  // of the life before, too
	read chan struct{} // closed when the log is read to its end
}

// startUp bounds how long a process may take until it serves; a cluster has to elect leaders.
const startUp = 2 * time.Minute

// start starts it and returns a channel that is closed once it is ready, or gone.
func (p *brokerProcess) start(program string) (ready <-chan struct{}) {
	p.t.Helper()
	p.cmd = exec.Command(program, p.args...)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ch, read := make(chan struct{}), make(chan struct{})
	p.read = read
	go func() {
		defer close(read)
		said := false
		lines := bufio.NewScanner(io.TeeReader(stderr, &p.log))
		for lines.Scan() {
			if !said && strings.Contains(lines.Text(), "msg=ready") {
				said = true
				close(ch)
			}
		}
		if !said {
			close(ch)
		}
	}()
	return ch
}

// kill is SIGKILL.
func (p *brokerProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.read
	_ = p.cmd.Wait()
}

// openPort finds a port below those that systems give to outgoing connections, so that it stays free while its process
// is down.
func openPort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 10_240 + rand.IntN(32_768-10_240)
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// processes are the members of a cluster, or one that is alone, not started.
func processes(t *testing.T, on string, n int) (all []*brokerProcess, program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "inflight")
	if out, err := exec.Command("go", "build", "-o", program, "inflight/cmd/inflight").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	var routes, members []string
	for range n {
		members = append(members, fmt.Sprintf("127.0.0.1:%d", openPort(t)))
		routes = append(routes, "nats://"+members[len(members)-1])
	}
	for i := range n {
		p := &brokerProcess{t: t, addr: fmt.Sprintf("127.0.0.1:%d", openPort(t))}
		p.args = []string{
			"broker", "--store", on, "--listen", p.addr, "--store-dir", t.TempDir(), "--node", fmt.Sprintf("n%d", i+1), "--sys-interval", "0",
		}
		if n > 1 {
			p.args = append(p.args, "--cluster", "crash-"+strings.ReplaceAll(members[0], ":", "-"), "--cluster-listen", members[i], "--routes", strings.Join(routes, ","), "--replicas", strconv.Itoa(n))
		}
		all = append(all, p)
	}
	return all, program
}

// crashes is a test with brokers that are killed, all at once, and started again.
type crashes struct {
	t       *testing.T
	all     []*brokerProcess
	program string
	over    chan struct{} // no more kills
	end     time.Time     // when it is given up
	rng     *rand.Rand
	rngMu   sync.Mutex
}

func (c *crashes) number(n int) int {
	c.rngMu.Lock()
	defer c.rngMu.Unlock()
	return c.rng.IntN(n)
}

// login connects to any node as soon as one serves; nil when the test is given up. A session that was there is there.
func (c *crashes) login(id string, first bool) *peer {
	for time.Now().Before(c.end) {
		p, got := c.attempt(id)
		switch {
		case p == nil:
		case first || got == "CONNACK present=true code=0":
			return p
		default:
			c.t.Errorf("%s: its session is gone: %s", id, got)
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.t.Errorf("%s: nobody serves", id)
	return nil
}

func (c *crashes) attempt(id string) (p *peer, connack string) {
	nc, err := net.Dial("tcp", c.all[c.number(len(c.all))].addr)
	if err != nil {
		return nil, ""
	}
	p = &peer{t: c.t, nc: nc, rd: packet.NewReader(nc, 4096, 0)}
	if _, err := nc.Write(packet.AppendConnect(nil, &packet.Connect{ClientID: id})); err == nil {
		if f, err := p.next(); err == nil {
			if got := describe(f); strings.HasSuffix(got, "code=0") {
				return p, got
			}
		}
	}
	_ = nc.Close()
	return nil, ""
}

// withheld is the identifier of a message whose PUBREL a publisher withholds while brokers are killed: what it releases
// behind it is discarded a second later only.
const withheld = 60_000

// hold publishes a message and does not release it.
func (c *crashes) hold(p *peer, topic string) bool {
	if _, err := p.nc.Write(dup(withheld, 2, topic, "0")); err != nil {
		return false
	}
	f, err := p.next()
	return err == nil && describe(f) == fmt.Sprintf("PUBREC %d", withheld)
}

// letGo releases it, over as many connections as it takes.
func (c *crashes) letGo(id string) {
	for {
		p := c.login(id, false)
		if p == nil {
			return
		}
		_, err := p.nc.Write(ack(packet.PUBREL, withheld))
		if err == nil {
			f, err := p.next()
			if err == nil && describe(f) == fmt.Sprintf("PUBCOMP %d", withheld) {
				_ = p.nc.Close()
				return
			}
		}
		_ = p.nc.Close()
	}
}

// watcher subscribes in a kept session and notes what it gets, connecting again whenever it is cut.
type watcher struct {
	c        *crashes
	id       string
	qos      byte
	topic    string
	total    *atomic.Int64 // how many there are; -1 while that is not known
	got      []int         // numbers in the order of arrival, each QoS 2 message once
	received map[uint16]bool
}

func (w *watcher) run(subscribed func()) {
	w.received = make(map[uint16]bool)
	for first := true; ; first = false {
		p := w.c.login(w.id, first)
		if p == nil {
			if first {
				subscribed()
			}
			return
		}
		if first {
			p.subscribe(w.topic, w.qos)
			subscribed()
		}
		done := w.session(p)
		_ = p.nc.Close()
		if done {
			return
		}
	}
}

// session reads until the connection ends, or until nothing more comes after the last message.
func (w *watcher) session(p *peer) (done bool) {
	for silent := 0; time.Now().Before(w.c.end); {
		total := w.total.Load()
		last := total >= 0 && (len(w.got) > 0 && w.got[len(w.got)-1] == int(total)-1 || w.qos == 0)
		wait := time.Second
		if last {
			wait = 2 * time.Second
		}
		_ = p.nc.SetReadDeadline(time.Now().Add(wait))
		f, err := p.rd.Next()
		if err, ok := err.(net.Error); ok && err.Timeout() {
			if silent++; last || total >= 0 && silent == int(patience/time.Second) {
				return true // what never came is judged
			}
			continue
		}
		if err != nil {
			return false
		}
		silent = 0
		switch f.Type() {
		case packet.PUBLISH:
			m, err := packet.ParsePublish(f)
			if err != nil {
				w.c.t.Errorf("%s: %v", w.id, err)
				return true
			}
			n, _ := strconv.Atoi(string(m.Payload))
			switch m.QoS {
			case 2:
				if !w.received[m.ID] {
					w.got = append(w.got, n)
				}
				w.received[m.ID] = true
				_, err = p.nc.Write(ack(packet.PUBREC, m.ID))
			case 1:
				w.got = append(w.got, n)
				_, err = p.nc.Write(ack(packet.PUBACK, m.ID))
			default:
				w.got = append(w.got, n)
			}
			if err != nil {
				return false
			}
		case packet.PUBREL:
			id := binary.BigEndian.Uint16(f.Body)
			delete(w.received, id)
			if _, err := p.nc.Write(ack(packet.PUBCOMP, id)); err != nil {
				return false
			}
		}
	}
	w.c.t.Errorf("%s: it still waits after %d messages", w.id, len(w.got))
	return true
}

// judge compares with the messages 0 to total-1, published once each. A QoS 0 subscriber may miss some, a QoS 1
// subscriber may get some again.
func (w *watcher) judge(total int) {
	times := make([]int, total)
	newest, wrong := -1, 0
	bad := func(format string, args ...any) {
		if wrong++; wrong <= 10 {
			w.c.t.Errorf("%s: "+format, append([]any{w.id}, args...)...)
		}
	}
	for i, n := range w.got {
		if n < 0 || n >= total {
			bad("message %d was never published", n)
			continue
		}
		times[n]++
		if times[n] > 1 && w.qos != 1 {
			bad("message %d came again (number %d of what came)", n, i)
		}
		if times[n] == 1 && n < newest {
			bad("message %d came first after %d", n, newest)
		}
		newest = max(newest, n)
	}
	if w.qos == 0 {
		return
	}
	for n, k := range times {
		if k == 0 {
			bad("message %d never came", n)
		}
	}
}

// TestExactlyOnceOverCrashes kills every broker process while messages are on their way, again and again. No node is left
// that could remember anything: what is released, and what is not, must be in the files.
func TestExactlyOnceOverCrashes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the program and kills it many times; run without -short")
	}
	eachDurable(t, func(t *testing.T, on string) {
		for name, test := range map[string]struct{ nodes, kills int }{
			"a node of its own": {1, 5},
			"a cluster":         {3, 3},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				runTrouble(t, on, test.nodes, 2*test.kills, func(c *crashes) {
					for range test.kills {
						c.kill()
					}
				})
			})
		}
	})
}

// up starts processes and waits until they serve.
func (c *crashes) up(some ...*brokerProcess) {
	c.t.Helper()
	var ready []<-chan struct{}
	for _, p := range some {
		ready = append(ready, p.start(c.program))
	}
	for _, ch := range ready {
		select {
		case <-ch:
		case <-time.After(startUp):
			c.t.Error("a broker is not ready")
		}
	}
}

// down kills processes, all of them before any is waited for.
func (c *crashes) down(some ...*brokerProcess) {
	for _, p := range some {
		_ = p.cmd.Process.Kill()
	}
	for _, p := range some {
		p.kill()
	}
}

// kill kills all of them after a moment and starts them again.
func (c *crashes) kill() {
	c.t.Helper()
	time.Sleep(time.Duration(100+c.number(500)) * time.Millisecond)
	c.down(c.all...)
	c.up(c.all...)
}

// startCrashes starts brokers.
func startCrashes(t *testing.T, on string, nodes int) *crashes {
	t.Helper()
	all, program := processes(t, on, nodes)
	return startCrashed(t, all, program)
}

// startCrashed is startCrashes with processes that are prepared.
func startCrashed(t *testing.T, all []*brokerProcess, program string) *crashes {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c := &crashes{
		t: t, all: all, program: program, over: make(chan struct{}), end: time.Now().Add(5 * patience),
		rng: rand.New(rand.NewPCG(seed, 99)),
	}
	c.up(all...)
	t.Cleanup(func() {
		for i, p := range all {
			p.kill()
			if t.Failed() {
				t.Logf("node %d:\n%s", i+1, tail(&p.log))
			}
		}
	})
	return c
}

// runTrouble publishes to watchers of each QoS, at least least messages on each topic, while something happens to the
// processes that all of them are connected to.
func runTrouble(t *testing.T, on string, nodes, least int, trouble func(c *crashes)) {
	c := startCrashes(t, on, nodes)
	seed := c.rng.Uint64()
	var publishers, watching, subscribed sync.WaitGroup
	var watchers []*watcher
	totals := map[string]*atomic.Int64{}
	windows := []int{16, 64}
	for _, topic := range []string{"k/16", "k/64", "k/withheld"} {
		totals[topic] = new(atomic.Int64)
		totals[topic].Store(-1)
		for qos := range byte(3) {
			w := &watcher{c: c, id: fmt.Sprintf("watcher of %s at QoS %d", topic, qos), qos: qos, topic: topic, total: totals[topic]}
			watchers = append(watchers, w)
			subscribed.Add(1)
			watching.Go(func() { w.run(subscribed.Done) })
		}
	}
	subscribed.Wait()
	for i, window := range windows {
		topic := fmt.Sprintf("k/%d", window)
		u := newUnreliable(t, fmt.Sprintf("p%d", window), topic, window, rand.New(rand.NewPCG(seed, uint64(i))))
		u.longest = 2 * time.Second
		holds := window == 64
		u.connect = func(first bool) *peer {
			p := c.login(u.id, first)
			for first && holds && p != nil && !c.hold(p, "k/withheld") {
				p = c.login(u.id, true)
			}
			return p
		}
		u.more = func(int) bool {
			select {
			case <-c.over:
				return false
			default:
				return true
			}
		}
		publishers.Go(func() {
			u.run()
			totals[topic].Store(int64(u.next))
			if holds {
				c.letGo(u.id)
				totals["k/withheld"].Store(1)
			}
		})
	}
	trouble(c)
	close(c.over)
	publishers.Wait()
	watching.Wait()
	for _, w := range watchers {
		total := int(w.total.Load())
		w.judge(total)
		t.Logf("%s: %d came of %d", w.id, len(w.got), total)
		if w.topic != "k/withheld" && total < least {
			t.Errorf("%s: only %d messages were published, want at least %d", w.id, total, least)
		}
	}
}

// tail is the end of a log.
func tail(b *bytes.Buffer) []byte {
	text := b.Bytes()
	return text[max(0, len(text)-4000):]
}
