package staged

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"inflight/broker/store"
)

// answers starts a table of calls on a node whose service answers as the test says.
func answers(t *testing.T, timeout time.Duration, service func(m *nats.Msg)) *calls {
	t.Helper()
	m := single(t)
	server, client := m.Conn(t), m.Conn(t)
	if service != nil {
		if _, err := server.Subscribe("svc", service); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.Flush(); err != nil {
		t.Fatal(err)
	}
	c, err := newCalls(client, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

type outcome struct {
	data string
	err  error
}

// ask sends a request whose outcome is counted: a second one is an error of the test.
func ask(t *testing.T, c *calls, body string) <-chan outcome {
	ch := make(chan outcome, 1)
	var n atomic.Int32
	c.send(&nats.Msg{Subject: "svc", Data: []byte(body)}, func(data []byte, err error) {
		if n.Add(1) > 1 {
			t.Errorf("request %q was answered again: %q, %v", body, data, err)
			return
		}
		ch <- outcome{string(data), err}
	})
	return ch
}

func await(t *testing.T, ch <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-ch:
		return o
	case <-time.After(startUp):
		t.Fatal("no outcome")
		return outcome{}
	}
}

func TestCallsMatchAnswers(t *testing.T) {
	var held []*nats.Msg
	var mu sync.Mutex
	c := answers(t, startUp, func(m *nats.Msg) {
		// Answers leave in the opposite order, three at a time.
		mu.Lock()
		defer mu.Unlock()
		if held = append(held, m); len(held) == 3 {
			for i := 2; i >= 0; i-- {
				_ = held[i].Respond(append([]byte("re: "), held[i].Data...))
			}
			held = nil
		}
	})
	for round := range 20 {
		var chs []<-chan outcome
		for i := range 3 {
			chs = append(chs, ask(t, c, fmt.Sprint(round, i)))
		}
		for i, ch := range chs {
			if o := await(t, ch); o.err != nil || o.data != "re: "+fmt.Sprint(round, i) {
				t.Fatalf("request %d of round %d: %+v", i, round, o)
			}
		}
	}
	if n := len(c.table); n > 3 {
		t.Errorf("the table has %d entries for three open requests: they are not used again", n)
	}
}

func TestCallsTimeOutAndLateAnswers(t *testing.T) {
	late := make(chan *nats.Msg, 10)
	c := answers(t, 100*time.Millisecond, func(m *nats.Msg) {
		if strings.HasPrefix(string(m.Data), "slow") {
			late <- m
			return
		}
		_ = m.Respond(m.Data)
	})
	slow := ask(t, c, "slow")
	if o := await(t, slow); o.err == nil || !strings.Contains(o.err.Error(), "no answer from the store within 100ms") {
		t.Fatalf("outcome %+v, want a time-out", o)
	}
	// Its entry is used by another request; the late answer must not be taken for that one's.
	next := ask(t, c, "slow too")
	first := <-late
	if err := first.Respond([]byte("late")); err != nil {
		t.Fatal(err)
	}
	if err := (<-late).Respond([]byte("mine")); err != nil {
		t.Fatal(err)
	}
	if o := await(t, next); o.err != nil || o.data != "mine" {
		t.Fatalf("outcome %+v, want its own answer", o)
	}
	for range 5 {
		if o := await(t, ask(t, c, "slow and never answered")); o.err == nil {
			t.Fatalf("outcome %+v", o)
		}
	}
	if n := len(c.table); n > 1 {
		t.Errorf("the table has %d entries for one open request at a time", n)
	}
	// A second answer to the same request is nobody's.
	if err := first.Respond([]byte("again")); err != nil {
		t.Fatal(err)
	}
	if o := await(t, ask(t, c, "quick")); o.data != "quick" {
		t.Fatalf("outcome %+v", o)
	}
}

func TestCallsWithoutAnybodyThere(t *testing.T) {
	c := answers(t, startUp, nil)
	if o := await(t, ask(t, c, "x")); !errors.Is(o.err, nats.ErrNoResponders) {
		t.Fatalf("outcome %+v, want ErrNoResponders at once", o)
	}
}

func TestCallsIgnoreWhatIsNoAnswer(t *testing.T) {
	late := make(chan *nats.Msg, 1)
	c := answers(t, startUp, func(m *nats.Msg) { late <- m })
	ch := ask(t, c, "x")
	m := <-late
	for _, subject := range []string{c.prefix + "not-a-number!", c.prefix + "zzzzzzzzzzzzzzzzzzzz", c.prefix + "0", c.prefix + "zzzz"} {
		if err := c.nc.Publish(subject, []byte("stray")); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Respond([]byte("real")); err != nil {
		t.Fatal(err)
	}
	if o := await(t, ch); o.data != "real" {
		t.Fatalf("outcome %+v, want the real answer", o)
	}
}

func TestCallsClose(t *testing.T) {
	late := make(chan *nats.Msg, 10)
	c := answers(t, startUp, func(m *nats.Msg) { late <- m })
	open := []<-chan outcome{ask(t, c, "a"), ask(t, c, "b")}
	first := <-late
	c.close()
	c.close() // again
	for _, ch := range open {
		if o := await(t, ch); !errors.Is(o.err, store.ErrClosed) {
			t.Errorf("outcome %+v, want ErrClosed", o)
		}
	}
	if o := await(t, ask(t, c, "after")); !errors.Is(o.err, store.ErrClosed) {
		t.Errorf("outcome %+v, want ErrClosed", o)
	}
	_ = first.Respond([]byte("late"))
}

// Whatever happens at the same time, each request has one outcome.
func TestCallsCloseUnderLoad(t *testing.T) {
	c := answers(t, startUp, func(m *nats.Msg) { _ = m.Respond(m.Data) })
	var chs [4][]<-chan outcome
	var wg sync.WaitGroup
	for g := range chs {
		wg.Go(func() {
			for i := range 300 {
				chs[g] = append(chs[g], ask(t, c, fmt.Sprint(g, i)))
			}
		})
	}
	time.Sleep(2 * time.Millisecond)
	c.close()
	wg.Wait()
	for g := range chs {
		for i, ch := range chs[g] {
			if o := await(t, ch); o.err == nil && o.data != fmt.Sprint(g, i) || o.err != nil && !errors.Is(o.err, store.ErrClosed) {
				t.Fatalf("request %d of %d: %+v", i, g, o)
			}
		}
	}
}

func TestParsePubAck(t *testing.T) {
	for _, tc := range []struct {
		answer    string
		seq       uint64
		duplicate bool
		err       string
	}{
		{`{"stream":"INF_staged", "seq":42}`, 42, false, ""},
		{`{"stream":"INF_staged","seq": 42}`, 42, false, ""},
		{`{"stream":"S","seq":18446744073709551615}`, 1<<64 - 1, false, ""},
		{`{"stream":"S","seq":7,"duplicate": true}`, 7, true, ""},
		{`{"stream":"S","domain":"d","seq":7}`, 7, false, ""},
		{`{"stream":"S","seq":7,"domain":"d"}`, 7, false, ""},
		{`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"S","seq":0}`, 0, false, "wrong last sequence: 3 (10071)"},
		{`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S","seq":7}`, 0, false, "10077"},
		{`{"type":"io.nats.jetstream.api.v1.stream_purge_response","success":true,"purged":3}`, 0, false, ""},
		{`{"type":"t","error":{"code":404,"err_code":10059,"description":"stream not found"}}`, 0, false, "stream not found"},
		{``, 0, false, "answer of the store"},
		{`{"seq":`, 0, false, "answer of the store"},
		{`{"seq":12`, 0, false, "answer of the store"},
		{`not json`, 0, false, "answer of the store"},
	} {
		seq, duplicate, err := parsePubAck([]byte(tc.answer))
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: error %v, want %q", tc.answer, err, tc.err)
			}
			continue
		}
		if err != nil || seq != tc.seq || duplicate != tc.duplicate {
			t.Errorf("%s: %d, %v, %v; want %d, %v", tc.answer, seq, duplicate, err, tc.seq, tc.duplicate)
		}
	}
	common := []byte(`{"stream":"INF_staged", "seq":42}`)
	if n := testing.AllocsPerRun(1000, func() { _, _, _ = parsePubAck(common) }); n != 0 {
		t.Errorf("%v allocations for the common form, want 0", n)
	}
}
