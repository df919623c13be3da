package target

import (
	"context"
	"errors"
	"slices"
)

// Slot is where a broker runs: which of the run's slots, and the directory below which its data goes.
type Slot struct {
	Number int // from 1; names the logs
	Dir    string
}

// Usage is what one process has used so far. What the system cannot tell is nil.
type Usage struct {
	Name       string   // of the node
	RSSPeak    *int64   // bytes
	CPUSeconds *float64 // user and system
}

// Broker is a running broker. Its methods are safe from any goroutine.
type Broker struct {
	program *Program
	addrs   []string
	died    chan struct{}
}

// Start starts nodes processes (0: one) with replicas copies of each stream (0: at most three) and returns once each is
// ready; the target's own parameters win. ctx bounds the start only, and when it fails nothing is left running.
func (p *Program) Start(ctx context.Context, slot Slot, nodes, replicas int) (*Broker, error) {
	return nil, errors.New("not implemented")
}

// Addrs are the MQTT addresses, host:port, one for each node.
func (b *Broker) Addrs() []string { return slices.Clone(b.addrs) }

// Version is the broker's version as it reports it itself.
func (b *Broker) Version() string { return b.program.version }

// Command is the command line of the first node, nil for a broker that was not started.
func (b *Broker) Command() []string { return nil }

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

// Usage is what each node has used so far, in the order of Addrs; after Stop what it had used then. It is nil for a
// broker that was not started.
func (b *Broker) Usage() []Usage { return nil }

// Died is closed when a process ends on its own. It never is for a broker that was not started.
func (b *Broker) Died() <-chan struct{} { return b.died }

// Err is a *DeadError once Died is closed, before that nil. With several dead nodes it is the first.
func (b *Broker) Err() error { return nil }

// Stop ends every process and removes the data directories; the logs stay. It may be called several times.
func (b *Broker) Stop() error { return nil }
