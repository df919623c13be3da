package library

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inflight/broker/packet"
	"inflight/runner/client"
	"inflight/runner/ledger"
)

// node is MQTT.js, installed. Its process is started when it is first needed.
type node struct {
	program string // of Node.js
	dir     string // where MQTT.js is installed
	version string // of MQTT.js
	process *process
}

// Limits of the process.
const (
	maxAnswer = 256 << 20 // bytes of one line: histograms and, at most, what a ledger of every connection lacks
	endTime   = 5 * time.Second
)

// process is a running driver. Answers are read by one goroutine; requests are made by one at a time.
type process struct {
	cmd     *exec.Cmd
	in      *json.Encoder
	stdin   interface{ Close() error }
	answers chan answer   // closed when the process has ended; err is valid then
	ended   chan struct{} // closed with it
	err     error
	trouble tail

	published atomic.Int64 // of the run under way
}

// answer is one line of the driver; one of its fields is set.
type answer struct {
	Opened, Closed bool
	Published      *int64 `json:"published"`
	Done           *done
	Error          string
}

// done is what a run measured; times are milliseconds.
type done struct {
	Messages, Published, Acked, Late, Missed int64
	Bytes                                    int64 // of the payloads of Messages
	Duration                                 float64
	LastAck                                  float64 // since the run began; below 0: none
	InFlight                                 float64
	CPU                                      float64      // seconds; below 0: not measured
	Service, Response                        [][2]float64 // microseconds and how often
	Counts                                   []int64      // messages of each connection, with a ledger
	Unacked                                  [][]int64    // those of them that were not acknowledged
}

// open starts the process if there is none, and has it make the plan's connections.
func (n *node) open(ctx context.Context, plan client.Plan) (Population, error) {
	if n.process == nil {
		p, err := n.start()
		if err != nil {
			return nil, fmt.Errorf("start the process of MQTT.js: %w", err)
		}
		n.process = p
	}
	ids := make([]string, plan.Connections)
	for i := range ids {
		ids[i] = plan.ClientID(i)
	}
	version := packet.Level311
	if plan.Version == packet.V5 {
		version = packet.Level5
	}
	timeout := plan.DialTimeout
	if timeout <= 0 {
		timeout = dialTimeout
	}
	a, err := n.ask(ctx, map[string]any{"open": map[string]any{
		"addrs": plan.Addrs, "ids": ids, "version": version, "timeout": milliseconds(timeout), "window": plan.Window, "qos": plan.QoS,
		"username": plan.Username, "password": string(plan.Password),
	}})
	if err == nil && !a.Opened {
		err = errors.New("MQTT.js answers something else than that the connections are open")
	}
	if err != nil {
		return nil, err
	}
	return &remote{node: n, plan: plan}, nil
}

// dialTimeout is that of one connection where the plan has none.
const dialTimeout = 10 * time.Second

// start starts the driver. The module is found beside it.
func (n *node) start() (*process, error) {
	driver, err := mqttjs.ReadFile("mqttjs/" + driverFile)
	if err != nil {
		return nil, err
	}
	file, err := writeDriver(n.dir, driver)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(n.program, file), answers: make(chan answer, 1), ended: make(chan struct{})}
	p.cmd.Stderr = &p.trouble
	p.cmd.WaitDelay = time.Second
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.stdin = json.NewEncoder(in), in
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 1<<16), maxAnswer)
	go p.read(lines)
	return p, nil
}

// writeDriver puts the driver beside the installed packages. Its name has its content in it: another version of this program
// may be using another one.
func writeDriver(dir string, driver []byte) (path string, err error) {
	path = filepath.Join(dir, fmt.Sprintf("driver-%08x.cjs", crc32.ChecksumIEEE(driver)))
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, driver) {
		return path, nil
	}
	f, err := os.CreateTemp(dir, "driver-*.tmp")
	if err != nil {
		return "", err
	}
	_, err = f.Write(driver)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return path, nil
}

// read hands on what the driver answers, until it ends.
func (p *process) read(lines *bufio.Scanner) {
	var err error
	for err == nil && lines.Scan() {
		var a answer
		if err = json.Unmarshal(lines.Bytes(), &a); err != nil {
			err = fmt.Errorf("an answer of MQTT.js: %w", err)
			break
		}
		if a.Published != nil {
			p.published.Store(*a.Published)
			continue
		}
		p.answers <- a
	}
	if err == nil {
		err = lines.Err()
	}
	if err != nil {
		_ = p.cmd.Process.Kill()
	}
	if waitErr := p.cmd.Wait(); err == nil && waitErr != nil {
		err = waitErr
	}
	if err == nil {
		err = errors.New("it ended")
	}
	p.err = fmt.Errorf("the process of MQTT.js: %w%s", err, indented(p.trouble.bytes()))
	close(p.answers)
	close(p.ended)
}

// Pid is the id of the process.
func (p *process) Pid() int { return p.cmd.Process.Pid }

// ask makes a request and waits for its answer. After an error the process is gone.
func (n *node) ask(ctx context.Context, request any) (answer, error) {
	p := n.process
	if p == nil {
		return answer{}, errors.New("the process of MQTT.js has ended")
	}
	if err := p.in.Encode(request); err != nil {
		n.kill()
		return answer{}, p.err // it does not read because it has ended
	}
	var err error
	select {
	case a, ok := <-p.answers:
		switch {
		case !ok:
			err = p.err
		case a.Error != "":
			err = errors.New(a.Error)
		default:
			return a, nil
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	n.kill()
	return answer{}, err
}

// kill ends the process at once.
func (n *node) kill() {
	p := n.process
	n.process = nil
	_ = p.cmd.Process.Kill()
	p.discard()
}

// discard waits for the end of the process.
func (p *process) discard() {
	for range p.answers {
	}
	<-p.ended
}

// close ends the process: its input ends, and if that is not enough it is killed.
func (n *node) close() error {
	p := n.process
	if p == nil {
		return nil
	}
	n.process = nil
	err := p.stdin.Close()
	timer := time.AfterFunc(endTime, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	p.discard()
	return err
}

// remote is a set of connections of MQTT.js.
type remote struct {
	node  *node
	plan  client.Plan
	begun atomic.Pointer[time.Time] // when Run began
}

// Run has the driver put the plan's load on the connections.
func (r *remote) Run(ctx context.Context) (*client.Stats, error) {
	plan := &r.plan
	quotas, lists := make([]int64, plan.Connections), make([][]string, plan.Connections)
	for i := range quotas {
		l := newLane(plan, i, nil, nil)
		quotas[i], lists[i] = min(l.quota, 1<<52), l.topics
	}
	request := map[string]any{
		"qos": plan.QoS, "window": plan.Window, "payload": plan.Payload, "topics": lists, "quotas": quotas,
		"warmup": milliseconds(plan.Warmup), "duration": milliseconds(plan.Duration),
		"drain": milliseconds(max(0, plan.Drain)), "stall": milliseconds(plan.StallTimeout),
	}
	if pace := plan.Pace(); pace.Open() {
		request["pace"] = map[string]float64{"from": pace.From, "to": pace.To, "hold": pace.Hold.Seconds(), "over": pace.Over.Seconds()}
	}
	if len(plan.Sizes) > 0 {
		request["sizes"], request["apart"] = plan.Sizes, client.SizesApart
	}
	if plan.Ledger != nil {
		request["ledger"] = hex.EncodeToString(binary.BigEndian.AppendUint64(nil, plan.Run))
	}
	if p := r.node.process; p != nil {
		p.published.Store(0)
	}
	begun := time.Now()
	r.begun.Store(&begun)
	finished := make(chan struct{})
	var to time.Time
	if plan.Duration > 0 {
		to = begun.Add(plan.Warmup + plan.Duration)
	}
	own := client.WatchCPU(begun.Add(plan.Warmup), to, finished)
	a, err := r.node.ask(ctx, map[string]any{"run": request})
	close(finished)
	mine := <-own
	if err == nil && a.Done == nil {
		err = errors.New("MQTT.js answers something else than what it measured")
	}
	if err != nil {
		return &client.Stats{}, err
	}
	return r.stats(a.Done, begun, mine)
}

// stats turns the driver's answer into what a run measured. own is the processor time of this process meanwhile.
func (r *remote) stats(d *done, begun time.Time, own *float64) (*client.Stats, error) {
	stats := &client.Stats{
		Messages: d.Messages, Bytes: d.Bytes, Published: d.Published, Acknowledged: d.Acked, Late: d.Late, Missed: d.Missed,
		Duration: duration(d.Duration), InFlightMean: d.InFlight, AckService: histogram(d.Service),
	}
	if r.plan.Rate > 0 {
		stats.AckResponse = histogram(d.Response)
	}
	if d.LastAck >= 0 {
		stats.LastAck = begun.Add(duration(d.LastAck))
	}
	if d.CPU >= 0 && own != nil {
		all := d.CPU + *own
		stats.CPUSeconds = &all
	}
	r.node.process.published.Store(d.Published)
	if r.plan.Ledger == nil {
		return stats, nil
	}
	if len(d.Counts) != r.plan.Connections || len(d.Unacked) != r.plan.Connections {
		return stats, errors.New("MQTT.js did not account for every connection")
	}
	for i, n := range d.Counts {
		keep(r.plan.Ledger.Book(i), n, d.Unacked[i])
	}
	return stats, nil
}

// keep notes in a book that messages 0 to n-1 went out, and all but some were acknowledged.
func keep(book *ledger.Book, n int64, unacked []int64) {
	missing := map[int64]bool{}
	for _, seq := range unacked {
		missing[seq] = true
	}
	for seq := range n {
		book.Published(seq)
		if !missing[seq] {
			book.Acknowledged(seq)
		}
	}
}

// Published is the number of messages published so far, as the driver told last.
func (r *remote) Published() int64 {
	if p := r.node.process; p != nil {
		return p.published.Load()
	}
	return 0
}

// Due is the number of messages that an open loop wants published by now.
func (r *remote) Due() int64 {
	if begun := r.begun.Load(); begun != nil {
		return due(&r.plan, time.Since(*begun))
	}
	return 0
}

// Close disconnects; the process stays.
func (r *remote) Close() error {
	if r.node.process == nil {
		return nil // it ended with the run, and its connections with it
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	a, err := r.node.ask(ctx, map[string]any{"close": true})
	if err == nil && !a.Closed {
		err = errors.New("MQTT.js answers something else than that the connections are closed")
	}
	return err
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func duration(ms float64) time.Duration {
	return time.Duration(math.Round(ms * float64(time.Millisecond)))
}

// histogram is one of nanoseconds from microseconds and how often each was.
func histogram(pairs [][2]float64) *hdrhistogram.Histogram {
	h := client.NewHistogram()
	for _, pair := range pairs {
		v := min(max(int64(pair[0]*1000), 0), h.HighestTrackableValue())
		// The value is inside the range, which is the only error there is.
		_ = h.RecordValues(v, int64(pair[1]))
	}
	return h
}

// tail keeps the end of what the driver prints on its standard error.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// maxTail bounds it, in bytes.
const maxTail = 8 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-maxTail):]
	return len(b), nil
}

func (t *tail) bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.kept)
}
