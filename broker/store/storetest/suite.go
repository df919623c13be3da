package storetest

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"testing"
	"time"

	"inflight/broker/store"
)

// patience bounds how long the suite waits for what must come.
const patience = 2 * time.Minute

// Fixture is a store under test. A nil func means that the store cannot do it; the tests that need it are skipped.
type Fixture struct {
	Store store.Store
	// Reopen opens the store again over the same data, after the suite has closed it.
	Reopen func(t *testing.T) store.Store
	// Restart closes the store, stops its node, starts that again over the same data, and opens the store on it.
	Restart func(t *testing.T) store.Store
	// Second opens another store over the same data beside the first one: that of another node.
	Second func(t *testing.T) store.Store
	// Garbage puts bytes that are no message where the store keeps a held one.
	Garbage func(t *testing.T, client string, id uint16)
}

// Run holds a store to the contract. open is called for each subtest; it registers its own cleanup, which must allow for
// a store that was closed already.
func Run(t *testing.T, open func(t *testing.T) *Fixture) {
	for _, group := range [][]check{publishing(), holding(), sessions(), feeding(), sharing(), retaining(), outbound(), closing(), concurrency(), restarting()} {
		for _, c := range group {
			t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
				fx := open(t)
				e := newEnv(t, fx.Store)
				e.fx = fx
				defer e.end()
				c.run(e)
			})
		}
	}
}

// check is one sentence of the contract.
type check struct {
	name string
	run  func(e *Env)
}

// Env is a subtest's view of a store: synchronous calls, feeds that collect, names of its own. Tests of what one
// implementation does beyond the contract use it as well.
type Env struct {
	*testing.T
	S      store.Store
	Client string // a Client Identifier of this subtest
	Root   string // a topic of this subtest, to be used as the first level

	fx    *Fixture
	mu    sync.Mutex
	calls []*call
	feeds []*Inbox
}

// call is one asynchronous operation.
type call struct {
	what string
	done chan struct{}
	n    int
	ref  store.Ref
	msg  *store.Message
	err  error
}

func newEnv(t *testing.T, s store.Store) *Env {
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name()))
	return &Env{T: t, S: s, Client: fmt.Sprintf("client-%x", h.Sum32()), Root: fmt.Sprintf("root%x", h.Sum32())}
}

// NewEnv returns a view of a store for a test, and checks at its end that every operation was reported once.
func NewEnv(t *testing.T, s store.Store) *Env {
	e := newEnv(t, s)
	t.Cleanup(e.end)
	return e
}

// View is the same subtest on another store, another node's view for instance.
func (e *Env) View(s store.Store) *Env {
	v := &Env{T: e.T, S: s, Client: e.Client, Root: e.Root}
	e.Cleanup(v.end)
	return v
}

// end closes the feeds and checks that each operation was reported exactly once.
func (e *Env) end() {
	e.Helper()
	for _, in := range e.feeds {
		in.Close()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.calls {
		if c.n != 1 {
			e.Errorf("%s was reported %d times, want once", c.what, c.n)
		}
	}
	e.calls = nil
}

func (e *Env) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	e.Cleanup(cancel)
	return ctx
}

// start notes an operation and returns what reports it.
func (e *Env) start(format string, args ...any) (*call, func(ref store.Ref, m *store.Message, err error)) {
	c := &call{what: fmt.Sprintf(format, args...), done: make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, c)
	return c, func(ref store.Ref, m *store.Message, err error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if c.n++; c.n == 1 {
			c.ref, c.msg, c.err = ref, m, err
			close(c.done)
		}
	}
}

// wait waits for the report of an operation.
func (e *Env) wait(c *call) (store.Ref, *store.Message, error) {
	e.Helper()
	select {
	case <-c.done:
		return c.ref, c.msg, c.err
	case <-time.After(patience):
		e.Fatalf("%s: no report within %v", c.what, patience)
		return 0, nil, nil
	}
}

// Msg makes a message on a topic below Root.
func (e *Env) Msg(qos byte, payload string) *store.Message {
	return &store.Message{Topic: e.Root + "/x", Payload: []byte(payload), QoS: qos}
}

func (e *Env) publishing(m *store.Message) *call {
	c, done := e.start("publish %.40q", m.Payload)
	e.S.Publish(m, func(ref store.Ref, err error) { done(ref, nil, err) })
	return c
}

func (e *Env) holding(client string, id uint16, m *store.Message) *call {
	c, done := e.start("hold %d %.40q", id, m.Payload)
	e.S.Hold(client, id, m, func(ref store.Ref, err error) { done(ref, nil, err) })
	return c
}

func (e *Env) releasing(client string, id uint16, ref store.Ref, m *store.Message) *call {
	c, done := e.start("release %d of ref %d", id, ref)
	e.S.Release(client, id, ref, m, func(ref store.Ref, err error) { done(ref, nil, err) })
	return c
}

func (e *Env) fetching(ref store.Ref) *call {
	c, done := e.start("fetch ref %d", ref)
	e.S.Fetch(ref, func(m *store.Message, err error) { done(0, m, err) })
	return c
}

// Publish publishes a message and waits until it is durable.
func (e *Env) Publish(m *store.Message) {
	e.Helper()
	if _, _, err := e.wait(e.publishing(m)); err != nil {
		e.Fatalf("publish: %v", err)
	}
}

// Hold holds a message of Client and waits until it is durable.
func (e *Env) Hold(id uint16, m *store.Message) store.Ref {
	e.Helper()
	ref, _, err := e.wait(e.holding(e.Client, id, m))
	if err != nil {
		e.Fatalf("hold %d: %v", id, err)
	}
	if ref == 0 {
		e.Fatalf("hold %d: Ref is 0, which names none", id)
	}
	return ref
}

// Release releases a message of Client and waits until that is durable.
func (e *Env) Release(id uint16, ref store.Ref, m *store.Message) {
	e.Helper()
	if _, _, err := e.wait(e.releasing(e.Client, id, ref, m)); err != nil {
		e.Fatalf("release %d: %v", id, err)
	}
}

// Fetch reads a held message back.
func (e *Env) Fetch(ref store.Ref) (*store.Message, error) {
	e.Helper()
	_, m, err := e.wait(e.fetching(ref))
	return m, err
}

// WantHeld checks what is held for Client: "7=3" is identifier 7, Ref 3.
func (e *Env) WantHeld(reason string, want ...store.Held) {
	e.Helper()
	e.wantHeld(reason, e.Client, want...)
}

func (e *Env) wantHeld(reason, client string, want ...store.Held) {
	e.Helper()
	got, err := e.S.Held(e.context(), client)
	if err != nil {
		e.Fatalf("%s: held: %v", reason, err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) && len(got)+len(want) > 0 {
		e.Fatalf("%s: held %v, want %v", reason, got, want)
	}
}

// same reports how a message differs from another; "" when it does not.
func same(got, want *store.Message) string {
	switch {
	case got == nil:
		return "there is no message"
	case got.Topic != want.Topic:
		return fmt.Sprintf("topic %q, want %q", got.Topic, want.Topic)
	case string(got.Payload) != string(want.Payload):
		return fmt.Sprintf("payload %.40q of %d bytes, want %.40q of %d", got.Payload, len(got.Payload), want.Payload, len(want.Payload))
	case got.QoS != want.QoS:
		return fmt.Sprintf("QoS %d, want %d", got.QoS, want.QoS)
	case got.Retain != want.Retain:
		return fmt.Sprintf("retain %v, want %v", got.Retain, want.Retain)
	}
	return ""
}
