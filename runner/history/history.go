package history

import (
	"fmt"
	"sync"
	"time"
)

// Kind says what an Event is.
type Kind byte

// The kinds of events.
const (
	Opened   Kind = iota + 1 // the transport connection was established
	Sent                     // one write; Raw may hold several packets, a part of one, or no packet at all
	Received                 // one whole control packet, or what cannot be one, see Garbage
	Garbage                  // bytes of the broker that cannot begin a control packet
	Closed                   // the broker ended the connection; Text says how
	Cut                      // we ended it; Text says how
	Mark                     // what the driver did beside the wire
)

var kindNames = [...]string{Opened: "opened", Sent: "sent", Received: "received", Garbage: "garbage", Closed: "closed", Cut: "cut", Mark: "mark"}

// String is the kind in a word.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", byte(k))
}

// Event is one thing that happened.
type Event struct {
	At   time.Duration // since the start of the history
	Conn int           // index into Conns; -1 for a Mark of no connection
	Kind Kind
	Raw  []byte
	Text string
}

// Conn is one transport connection.
type Conn struct {
	Name    string // the script's name for the client, the same for each of its connections
	Nth     int    // which of its connections, from 1
	Client  string // Client Identifier
	Version byte   // Protocol Level: 4 is MQTT 3.1.1, 5 is 5.0
	Addr    string
}

// History is one run of one check.
type History struct {
	Check   string // rule id
	Version byte   // Protocol Level
	Round   int    // from 1
	Seed    uint64
	Started time.Time
	Facts   map[string]string // what the judge must know that is not on the wire, as the capabilities of the broker
	Trouble string            // why the driver could not do its part; the run then says nothing about the rule
	Stuck   string            // the expectation of the script that was not met, and ended it
	Full    bool              // events were left out because there were too many

	Conns  []Conn
	Events []Event
}

// Limits of one history.
const (
	MaxEvents = 4 << 20
	MaxBytes  = 256 << 20 // of raw bytes
	MaxConns  = 1 << 16
)

// Recorder appends to a History. Its methods are safe from any goroutine; the order of the events is that of the calls.
type Recorder struct {
	start time.Time
	now   func() time.Time

	mu    sync.Mutex
	h     *History
	bytes int
	done  bool
}

// NewRecorder starts a history; now is the clock. h is the recorder's until Finish.
func NewRecorder(h *History, now func() time.Time) *Recorder {
	start := now()
	h.Started = start
	if h.Facts == nil {
		h.Facts = map[string]string{}
	}
	return &Recorder{start: start, now: now, h: h}
}

// Open adds a connection and returns its index.
func (r *Recorder) Open(c Conn) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Nth = 1
	for i := range r.h.Conns {
		if r.h.Conns[i].Name == c.Name {
			c.Nth++
		}
	}
	if len(r.h.Conns) == MaxConns {
		r.h.Full = true
		return MaxConns - 1
	}
	r.h.Conns = append(r.h.Conns, c)
	n := len(r.h.Conns) - 1
	r.add(n, Opened, nil, "")
	return n
}

// Add appends an event. raw is copied.
func (r *Recorder) Add(conn int, kind Kind, raw []byte, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(conn, kind, raw, text)
}

func (r *Recorder) add(conn int, kind Kind, raw []byte, text string) {
	if r.done {
		return
	}
	if len(r.h.Events) == MaxEvents || r.bytes+len(raw) > MaxBytes {
		r.h.Full = true
		return
	}
	r.bytes += len(raw)
	r.h.Events = append(r.h.Events, Event{At: r.now().Sub(r.start), Conn: conn, Kind: kind, Raw: append([]byte(nil), raw...), Text: text})
}

// Note keeps why the driver gave up, the first reason only: Trouble if the check could not be made, else Stuck.
func (r *Recorder) Note(trouble bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.h.Trouble != "" || r.h.Stuck != "" {
		return
	}
	if trouble {
		r.h.Trouble = text
	} else {
		r.h.Stuck = text
	}
	r.add(-1, Mark, nil, "gave up: "+text)
}

// Fact keeps something that the judge must know.
func (r *Recorder) Fact(key, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.done {
		r.h.Facts[key] = value
	}
}

// Finish ends the history. Events that come later are dropped: the judge must see what a file would hold.
func (r *Recorder) Finish() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = true
	return r.h
}
