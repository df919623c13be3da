package target

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"inflight/runner/fault"
)

// Slot is where a broker runs: which of the run's slots, and the directory below which its data goes.
type Slot struct {
	Number int // from 1; names the logs
	Dir    string
	CPUs   []int // that its processes may run on; none: any
}

// Usage is what one process has used so far. What the system cannot tell is nil.
type Usage struct {
	Name       string   // of the node
	RSS        *int64   // bytes, now
	RSSPeak    *int64   // bytes, since its start or the last [Broker.ResetPeaks]
	CPUSeconds *float64 // user and system
	Threads    *int64   // now
	FDs        *int64   // open descriptors, now
	DiskBytes  *int64   // that it made the storage layer write
	WriteCalls *int64   // system calls that write, to sockets as well
}

// Broker is a running broker. Its methods are safe from any goroutine.
type Broker struct {
	program    *Program
	addrs      []string        // MQTT, one for each node
	processes  []*process      // nil for an address; guarded by mu once they are started, see running
	data       []*templateData // one for each process, to start it again
	slot       Slot
	healthURLs []string       // one for each process, "" where a node cannot be asked
	leaderURLs []string       // the same, about the streams; none alone
	root       string         // everything below is removed by Stop
	relays     []*fault.Relay // one to each node, nil unless they were asked for
	bridge     *bridge        // nil but for an address of TLS or WebSocket
	died       chan struct{}

	mu       sync.Mutex
	stopping bool // what ends from now on does not die
	err      error

	stopOnce sync.Once
	stopErr  error
}

// Start starts nodes processes (0: one) with replicas copies of each stream (0: at most three) and returns once each is
// ready; the target's own parameters win, see [Spec.Topology]. ctx bounds the start only. When the start fails nothing is
// left running; the error is a *[DeadError], a *[NotReadyError] or says itself what to do.
func (p *Program) Start(ctx context.Context, slot Slot, nodes, replicas int) (*Broker, error) {
	if p.about == nil {
		b := &Broker{program: p, addrs: []string{p.spec.address}, died: make(chan struct{})}
		if p.spec.Bridged() {
			e := p.spec.Endpoint()
			e.TLS = p.options.TLS
			var err error
			if b.bridge, err = newBridge(ctx, e); err != nil {
				return nil, fmt.Errorf("%s: %w", p.spec.Raw, err)
			}
			b.addrs = []string{b.bridge.addr()}
		}
		if err := b.ready(ctx, min(addressTimeout, p.options.ReadyTimeout)); err != nil {
			return nil, errors.Join(err, b.Stop())
		}
		return b, nil
	}
	n, r, err := p.spec.Topology(max(nodes, 1), replicas)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		b, err := p.launch(slot, n, r)
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", p.spec.Raw, err)
		}
		if err = b.ready(ctx, p.options.ReadyTimeout); err == nil {
			return b, nil
		}
		err = errors.Join(err, b.Stop())
		// With port= a taken port is reported; a port of our own choosing is chosen again.
		if _, fixed := p.spec.Params["port"]; fixed || !portTaken(err) || try == portTries || ctx.Err() != nil {
			return nil, err
		}
		p.options.Talk("a port of %s was taken just before its start, trying others", p.spec.Raw)
	}
}

// launch starts the processes of n nodes and does not wait for them.
func (p *Program) launch(slot Slot, n, replicas int) (b *Broker, err error) {
	if p.options.LogDir == "" {
		return nil, errors.New("no directory for the logs")
	}
	root, err := makeRoot(slot.Dir, p.about.Kind)
	if err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	b = &Broker{program: p, root: root, slot: slot, died: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Stop())
			b = nil
		}
	}()
	first, _ := strconv.Atoi(p.spec.Params["port"]) // 0 when not given
	ports, err := choosePorts(slot.Number, n, p.about.Ports, first)
	if err != nil {
		return b, err
	}
	// A name that no other cluster has: members that dialled a stranger's port would otherwise become its members.
	cluster := fmt.Sprintf("inflight-slot%d-%s", slot.Number, rand.Text()[:8])
	nodes := make([]*node, n)
	for i := range nodes {
		name := "n" + strconv.Itoa(i+1)
		nodes[i] = &node{Name: name, Ports: ports[i], root: filepath.Join(root, name), peers: p.about.Peers}
	}
	if p.options.Relayed && n > 1 && p.about.Peers != "" {
		if err := b.relay(nodes); err != nil {
			return b, err
		}
	}
	var all []*process
	for _, node := range nodes {
		data := &templateData{
			Name: node.Name, Node: node, Nodes: nodes, Clustered: n > 1, Cluster: cluster,
			Dir: node.data(), Replicas: replicas, Params: p.spec.Params, Denied: p.options.Denied,
		}
		b.data = append(b.data, data)
		process, err := p.process(slot, data)
		if err != nil {
			return b, errors.Join(err, closeLogs(all))
		}
		process.onExit = b.exited
		all = append(all, process)
		addr, err1 := node.address(p.about.Ports[0])
		url, err2 := render(p.about.Health, data)
		leaders, err3 := render(p.about.Leaders.URL, data)
		if err := errors.Join(err1, err2, err3); err != nil {
			return b, errors.Join(err, closeLogs(all))
		}
		b.addrs, b.healthURLs = append(b.addrs, addr), append(b.healthURLs, url)
		if n > 1 && leaders != "" {
			b.leaderURLs = append(b.leaderURLs, leaders)
		}
	}
	started, err := startAll(all, slot.CPUs)
	b.processes = all[:started]
	return b, err
}

// relay puts a relay in the way to each node.
func (b *Broker) relay(nodes []*node) error {
	for _, n := range nodes {
		addr, err := n.address(n.peers)
		if err != nil {
			return err
		}
		r, err := fault.NewRelay(loopback, addr)
		if err != nil {
			return err
		}
		b.relays = append(b.relays, r)
		n.Relay = r.Addr()
	}
	return nil
}

// makeRoot makes a new directory below dir. It is absolute: each node runs in a directory of its own.
func makeRoot(dir, kind string) (string, error) {
	if dir == "" {
		return "", errors.New("the slot has no directory")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	return os.MkdirTemp(dir, kind+"-")
}

func closeLogs(processes []*process) error {
	var errs []error
	for _, p := range processes {
		errs = append(errs, p.log.Close())
	}
	return errors.Join(errs...)
}

// process writes the files of the node of data and makes its process, not started yet.
func (p *Program) process(slot Slot, data *templateData) (*process, error) {
	n := data.Node
	if err := os.MkdirAll(n.data(), 0o777); err != nil {
		return nil, fmt.Errorf("make the data directory of node %s: %w", n.Name, err)
	}
	for name, text := range p.about.Files {
		content, err := render(text, data)
		if err != nil {
			return nil, fmt.Errorf("targets/%s.yaml: files: %s: %w", p.about.Kind, name, err)
		}
		if err := os.WriteFile(filepath.Join(n.root, name), []byte(content), 0o666); err != nil {
			return nil, fmt.Errorf("write the configuration of node %s: %w", n.Name, err)
		}
	}
	args, err := p.about.arguments(data)
	if err != nil {
		return nil, err
	}
	log := filepath.Join(p.options.LogDir, fmt.Sprintf("%d-%s-%s.log", slot.Number, p.about.Kind, n.Name))
	process, err := newProcess(n.Name, log, slices.Concat([]string{p.path}, args, p.options.Args))
	if err != nil {
		return nil, err
	}
	process.cmd.Dir = n.root
	return process, nil
}

// exited is told about each process that has ended, on that process's goroutine.
func (b *Broker) exited(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping || b.err != nil || p.expected {
		return
	}
	b.err = &DeadError{Target: b.program.spec.Raw, Node: p.name, Status: p.status, LastLines: p.lastLines(), LogPath: p.logPath}
	close(b.died)
}

// Addrs are the MQTT addresses, host:port, one for each node.
func (b *Broker) Addrs() []string { return slices.Clone(b.addrs) }

// Version is the broker's version as it reports it itself.
func (b *Broker) Version() string { return b.program.version }

// Command is the command line of the first node, nil for a broker that was not started.
func (b *Broker) Command() []string {
	all := b.running()
	if len(all) == 0 {
		return nil
	}
	return slices.Clone(all[0].cmd.Args)
}

// Delivers reports whether a subscriber gets what was published.
func (b *Broker) Delivers() bool { return b.program.about == nil || b.program.about.Delivers }

// OrderedAcks reports whether the broker declares that acknowledgements come in packet order.
func (b *Broker) OrderedAcks() bool { return b.program.about != nil && b.program.about.OrderedAck }

// Managed reports whether the processes are ours to start and stop.
func (b *Broker) Managed() bool { return b.program.about != nil }

// Durability is memory, file or file+sync; "" when it is not known.
func (b *Broker) Durability() string {
	if b.program.about == nil {
		return ""
	}
	return b.program.about.durability(b.program.spec.Params)
}

// Nodes is the number of processes, 1 for a broker that was not started.
func (b *Broker) Nodes() int { return len(b.addrs) }

// Usage is what each node has used so far, in the order of Addrs; of a process that has ended, what it had used at the
// call before (Stop makes one). It is nil for a broker that was not started.
func (b *Broker) Usage() []Usage {
	var all []Usage
	for _, p := range b.running() {
		all = append(all, p.usage())
	}
	return all
}

// Pulse is what a process uses now, cheap enough to be asked for many times a second.
type Pulse struct {
	RSS        int64   // resident, bytes
	CPUSeconds float64 // user and system time since its start
}

// Pulses are those of all nodes, in the order of Usage; nil where one of them is not known.
func (b *Broker) Pulses() []Pulse {
	var all []Pulse
	for _, p := range b.running() {
		now, ok := p.pulse()
		if !ok {
			return nil
		}
		all = append(all, now)
	}
	return all
}

// ResetPeaks makes every node's peak of the resident memory begin anew at what it is now. It reports whether that worked:
// if not, peaks are those since the start of the process.
func (b *Broker) ResetPeaks() bool {
	processes := b.running()
	all := len(processes) > 0
	for _, p := range processes {
		all = p.resetPeak() && all
	}
	return all
}

// Own is what this process has used so far.
func Own() Usage {
	u := UsageOf(os.Getpid())
	u.Name = "generator"
	return u
}

// UsageOf is what a process has used so far; nothing of one that is gone.
func UsageOf(pid int) Usage {
	var u Usage
	usage(pid, &u)
	return u
}

// PulseOf is that of a process, which is not known where ok is false.
func PulseOf(pid int) (_ Pulse, ok bool) { return pulse(pid) }

// Died is closed when a process ends on its own. It never is for a broker that was not started.
func (b *Broker) Died() <-chan struct{} { return b.died }

// Err is a *[DeadError] once Died is closed, nil before that. With several dead nodes it is the first.
func (b *Broker) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// Stop ends every process, all at once, and removes the data directories; the logs stay. Each process is asked first and
// killed after 5 s. It may be called several times, and returns when everything is gone.
func (b *Broker) Stop() error {
	b.stopOnce.Do(func() {
		b.mu.Lock()
		b.stopping = true
		b.mu.Unlock()
		b.Usage()
		processes := b.running()
		errs := make([]error, len(processes), len(processes)+1)
		var each sync.WaitGroup
		for i, p := range processes {
			each.Go(func() { errs[i] = p.stop(stopGrace) })
		}
		each.Wait()
		if b.root != "" {
			errs = append(errs, os.RemoveAll(b.root))
		}
		if b.bridge != nil {
			errs = append(errs, b.bridge.close())
		}
		for _, r := range b.relays {
			errs = append(errs, r.Close())
		}
		if err := errors.Join(errs...); err != nil {
			b.stopErr = fmt.Errorf("stop %s: %w", b.program.spec.Raw, err)
		}
	})
	return b.stopErr
}
