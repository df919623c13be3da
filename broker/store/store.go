package store

import (
	"context"
	"errors"
	"time"
)

// Message is an application message. It is never changed once it was handed to a store.
type Message struct {
	Topic   string
	Payload []byte
	QoS     byte // as published
	Retain  bool

	// MQTT 5.0
	Passed  []byte // the properties that are passed on, encoded: see packet.Properties.Passed
	Expires int64  // when it expires, in Unix milliseconds; 0: never
	From    string // Client Identifier of the publisher, where a subscription may want to know (No Local); else ""
}

// plain reports whether a message has nothing that only MQTT 5.0 knows.
func (m *Message) plain() bool { return len(m.Passed) == 0 && m.Expires == 0 && m.From == "" }

// extra5 is what the header of a message that is not plain takes beyond that of a plain one.
const extra5 = 8 + 2 + 4

// Size is what the message costs in memory, in bytes; with 4 it is the size of its encoding.
func (m *Message) Size() int {
	n := len(m.Topic) + len(m.Payload)
	if !m.plain() {
		n += extra5 + len(m.From) + len(m.Passed)
	}
	return n
}

// Left is how much of the Message Expiry Interval is left at now, in seconds, rounded up; 0 when the message has
// expired. It is only for messages that can expire.
func (m *Message) Left(now time.Time) uint32 {
	left := (m.Expires - now.UnixMilli() + 999) / 1000
	return uint32(min(max(left, 0), 0xFFFF_FFFF))
}

// Ref names a held message inside its store. The zero Ref names none.
type Ref uint64

// Held is a QoS 2 message between PUBLISH and PUBREL, as found on resume.
type Held struct {
	ID  uint16 // Packet Identifier
	Ref Ref
}

// Subscription is one Topic Filter of a session.
type Subscription struct {
	Filter string `json:"filter"`
	QoS    byte   `json:"qos"`

	// MQTT 5.0
	NoLocal           bool   `json:"no_local,omitempty"`
	RetainAsPublished bool   `json:"retain_as_published,omitempty"`
	ID                uint32 `json:"id,omitempty"` // Subscription Identifier; 0: none
}

// Session is the record of a session that every node can find.
type Session struct {
	ClientID      string         `json:"client_id"`
	Node          string         `json:"node"` // which node serves it, or served it last
	Clean         bool           `json:"clean"`
	Subscriptions []Subscription `json:"subscriptions,omitempty"`
	Updated       time.Time      `json:"updated"`

	// MQTT 5.0: a session that is not Clean ends so many seconds after its connection ended; nil: never.
	Expiry *uint32    `json:"expiry,omitempty"`
	Ended  *time.Time `json:"ended,omitempty"` // when its connection ended; nil: it goes on, or its node failed

	Will *Will `json:"will,omitempty"` // neither published nor withdrawn; nil: none

	// Revision tells this state of the record from every other one. It is the store's: reading and writing sets it.
	Revision uint64 `json:"-"`
}

// Will is a Will Message with what it takes to publish it when its connection, and maybe its node, is gone.
type Will struct {
	Topic   string `json:"topic"`
	Payload []byte `json:"payload,omitempty"`
	QoS     byte   `json:"qos,omitempty"`
	Retain  bool   `json:"retain,omitempty"`

	// MQTT 5.0
	Delay  uint32  `json:"delay,omitempty"`  // Will Delay Interval in seconds
	Passed []byte  `json:"passed,omitempty"` // see Message
	Expiry *uint32 `json:"expiry,omitempty"` // Message Expiry Interval in seconds, from when it is published; nil: none

	// Ref is its held copy, at QoS 2, once it was decided that it is published: whoever finds it releases it.
	Ref Ref `json:"ref,omitempty"`
}

// Lives reports whether the session can be resumed at now.
func (s *Session) Lives(now time.Time) bool {
	switch {
	case s.Clean:
		return false
	case s.Expiry == nil:
		return true
	}
	return *s.Expiry > 0 && (s.Ended == nil || now.Before(s.Ended.Add(time.Duration(*s.Expiry)*time.Second)))
}

// Delivery is a message on its way to a subscriber. Settle tells the store that it need not deliver it again; it does
// not wait.
type Delivery struct {
	Message *Message
	QoS     byte   // granted: the lower of the publication's and the subscription's [MQTT-3.8.4-6]
	Seq     uint64 // names the message among those of its subscription, for as long as it is not settled; 0: nothing is kept
	Retain  bool   // sent because of a new subscription [MQTT-3.3.1-8], not because it was published [MQTT-3.3.1-9]
	Left    uint32 // seconds that Message Expiry has left when it is sent, if Message.Expires
	Settle  func()
	Back    func() // of a shared subscription, else nil: says, in place of Settle, that it was not sent and will not be
}

// Feed is the stream of deliveries of one subscription. Close stops it; a durable one keeps its place. The feed of a
// shared subscription is open only while its client is connected.
type Feed interface {
	Close()
}

// Done receives the outcome of an asynchronous operation, exactly once, from any goroutine, possibly before the method
// that started it has returned. It must not block.
type Done func(ref Ref, err error)

// Store keeps messages and sessions. Publish, Hold and Release return at once; operations of one caller take effect in
// the order of the calls, whatever the order in which they are reported.
//
// What every implementation promises:
//   - done with a nil error means that the effect is as durable as the store's declared durability;
//   - a held message is delivered to nobody before Release [method A of figure 4.3];
//   - Release makes the delivery durable and the held copy go, in an order that leaves at least one of them at any
//     time; releasing the same Ref again delivers nothing more;
//   - deliveries of one subscription come in the order in which Publish and Release took effect;
//   - a message with Retain set is stored as its topic's retained message when it takes effect, an empty one removes the
//     retained message [MQTT-3.3.1-5] [MQTT-3.3.1-10]; done with a nil error covers that as well.
type Store interface {
	// Publish makes a QoS 1 message durable and delivers it.
	Publish(m *Message, done Done)
	// Transient delivers a QoS 0 message to whoever is there; nothing is kept.
	Transient(m *Message) error
	// Hold keeps a QoS 2 message of a client under its Packet Identifier. done gets its Ref.
	Hold(client string, id uint16, m *Message, done Done)
	// Release delivers the message held as ref and forgets the held copy.
	Release(client string, id uint16, ref Ref, m *Message, done Done)
	// Fetch reads a held message back.
	Fetch(ref Ref, done func(m *Message, err error))
	// Discard forgets a held message without delivering it.
	Discard(client string, ref Ref)
	// Held lists the messages of a client that were held and not released, oldest first.
	Held(ctx context.Context, client string) ([]Held, error)
	// Forget drops everything that is held for a client.
	Forget(ctx context.Context, client string) error

	// Session reads a session's record; ErrNotFound when there is none.
	Session(ctx context.Context, client string) (*Session, error)
	// Sessions calls each with every record, in no order, until it returns false. A record that is written meanwhile may be
	// left out or come twice.
	Sessions(ctx context.Context, each func(*Session) bool) error
	// PutSession writes it.
	PutSession(ctx context.Context, s *Session) error
	// SwapSession writes it if the record is still that of its Revision, 0 standing for none; ErrConflict if not. Of two
	// nodes that swap the same record one succeeds.
	SwapSession(ctx context.Context, s *Session) error
	// DeleteSession removes the record if it is still that of a revision; with math.MaxUint64 whatever it is.
	DeleteSession(ctx context.Context, client string, revision uint64) error

	// Subscribe starts, or continues, the feed of one subscription. A durable feed keeps its place while it is closed.
	// Each message for a shared subscription, $share/{ShareName}/{filter}, goes to one of its open feeds, in turn; while none is open, those
	// of QoS 1 and 2 wait if a durable one is closed. What a feed has delivered stays its own until it is unsubscribed: then
	// QoS 1 may go to another one, QoS 2 does not [MQTT-4.8.2-4] [MQTT-4.8.2-5].
	// Deliveries of QoS 1 and 2 publications come one at a time, in order and without a gap: what was published before a
	// message and is not settled was delivered before it. deliver may block: that is the feed's backpressure. Those of QoS 0
	// publications (Delivery.Message.QoS) come from another goroutine, which must not be blocked.
	Subscribe(ctx context.Context, client string, sub Subscription, durable bool, deliver func(Delivery)) (Feed, error)
	// Unsubscribe forgets the place of a durable subscription. Its feed is closed first.
	Unsubscribe(ctx context.Context, client, filter string) error

	// RetainedEnd is the number of the last change of a retained message, at least of those that this store was asked for
	// before the call.
	RetainedEnd(ctx context.Context) (uint64, error)
	// Retained calls each with the retained messages that match a Topic Filter, as they were published, until it returns
	// false. each may block. What changed after the number end is left out: whoever subscribed before gets the change as a
	// delivery.
	Retained(ctx context.Context, filter string, end uint64, each func(*Message) bool) error

	// PutOutbound keeps what a session has sent and not seen acknowledged, in place of what was kept before; nil removes it.
	// Records of one client take effect in the order of the calls. Of stores that share their records, those of one fail with
	// ErrConflict, or have no effect, once another one has read the record and written it: also those that are under way.
	// data is not touched any more.
	PutOutbound(client string, data []byte, done func(error))
	// Outbound reads it; nil when there is none. From here on this store writes it.
	Outbound(ctx context.Context, client string) ([]byte, error)
	// Again reads a message that was delivered to a durable subscription and not settled; ErrNotFound when it is gone.
	Again(client, filter string, seq uint64, done func(*Message, error))

	// Durability is memory, file, or file+sync.
	Durability() string
	// Close ends the store and every feed; operations that are still pending fail.
	Close()
}

// Claimer is a Store that several nodes share and that can tell them apart. Once Claim has returned, what this store or
// any other one has under way for the client from before has taken effect or never will, and the feeds that others have
// for it end. Operations on the client are refused from another claim on, by any store, until the next one here.
type Claimer interface {
	Claim(ctx context.Context, client string) error
}

// ErrNotFound says that there is no such record or message.
var ErrNotFound = errors.New("not found")

// ErrConflict says that a record was changed since it was read.
var ErrConflict = errors.New("changed meanwhile")

// ErrClosed says that the store was closed.
var ErrClosed = errors.New("store is closed")

// ErrCorrupt says that stored bytes are not a message.
var ErrCorrupt = errors.New("stored message is corrupt")
