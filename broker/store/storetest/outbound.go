package storetest

import (
	"bytes"
	"errors"
	"fmt"

	"inflight/broker/store"
)

func (e *Env) putOutbound(client string, data []byte) error {
	e.Helper()
	c, done := e.start("outbound record of %d bytes", len(data))
	e.S.PutOutbound(client, data, func(err error) { done(0, nil, err) })
	_, _, err := e.wait(c)
	return err
}

func (e *Env) again(filter string, seq uint64) (*store.Message, error) {
	e.Helper()
	c, done := e.start("again %d", seq)
	e.S.Again(e.Client, filter, seq, func(m *store.Message, err error) { done(0, m, err) })
	_, m, err := e.wait(c)
	return m, err
}

func outbound() []check {
	want := func(e *Env, reason, client string, want []byte) {
		e.Helper()
		got, err := e.S.Outbound(e.context(), client)
		if err != nil || !bytes.Equal(got, want) {
			e.Fatalf("%s: outbound record %.20q, %v; want %.20q", reason, got, err, want)
		}
	}
	put := func(e *Env, client string, data []byte) {
		e.Helper()
		if err := e.putOutbound(client, data); err != nil {
			e.Fatal(err)
		}
	}
	return []check{
		{"an outbound record is read as it was written last", func(e *Env) {
			want(e, "never written", e.Client, nil)
			put(e, e.Client, []byte{1, 0, 255})
			put(e, e.Client+"*", []byte("another client's"))
			want(e, "written", e.Client, []byte{1, 0, 255})
			big := bytes.Repeat([]byte{7}, 1<<20)
			put(e, e.Client, big)
			want(e, "written again", e.Client, big)
			if _, err := e.S.Session(e.context(), e.Client); !errors.Is(err, store.ErrNotFound) {
				e.Errorf("it is no session record: %v", err)
			}
			put(e, e.Client, nil)
			want(e, "removed", e.Client, nil)
			want(e, "not removed", e.Client+"*", []byte("another client's"))
		}},
		{"outbound records take effect in the order of the calls", func(e *Env) {
			var calls []*call
			for i := range 100 {
				c, done := e.start("record %d", i)
				e.S.PutOutbound(e.Client, fmt.Append(nil, i), func(err error) { done(0, nil, err) })
				calls = append(calls, c)
			}
			for _, c := range calls {
				if _, _, err := e.wait(c); err != nil {
					e.Fatal(err)
				}
			}
			want(e, "the last", e.Client, []byte("99"))
		}},
		{"an outbound record survives the store", func(e *Env) {
			if e.fx.Reopen == nil {
				e.Skip("does not apply: nothing survives in this store")
			}
			put(e, e.Client, []byte("A"))
			e.S.Close()
			e = e.View(e.fx.Reopen(e.T))
			want(e, "as it was", e.Client, []byte("A"))
		}},
		{"an outbound record of a store that the session has left has no effect", func(e *Env) {
			if e.fx.Second == nil {
				e.Skip("does not apply: this store shares nothing")
			}
			second := e.View(e.fx.Second(e.T))
			take := func(e *Env, holds string) {
				e.Helper()
				if c, ok := e.S.(store.Claimer); ok {
					if err := c.Claim(e.context(), e.Client); err != nil {
						e.Fatal(err)
					}
				}
				want(e, "taken over", e.Client, []byte(holds))
			}
			take(e, "")
			put(e, e.Client, []byte("1"))
			put(e, e.Client, []byte("2"))
			take(second, "2")
			put(second, e.Client, []byte("3"))
			for range 2 {
				if err := e.putOutbound(e.Client, []byte("late")); err == nil {
					e.Error("a record of before was taken")
				}
			}
			put(second, e.Client, []byte("4"))
			want(second, "as it was", e.Client, []byte("4"))
			take(e, "4")
			put(e, e.Client, []byte("5"))
			if err := second.putOutbound(e.Client, []byte("late")); err == nil {
				e.Error("a record of the second store was taken after the first one went on")
			}
			// The session ends, and another one begins.
			put(e, e.Client, nil)
			put(e, e.Client, []byte("6"))
			want(e, "the new one's", e.Client, []byte("6"))
			put(e, e.Client, nil)
			put(e, e.Client, nil)
		}},
		{"an unsettled delivery can be read again by its number", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, true)
			in.Keep = true
			e.Publish(e.Msg(1, "A"))
			e.put(e.Msg(2, "B"))
			e.Transient(e.Root+"/x", "C")
			var last uint64
			for range 3 {
				d := in.Next("three")
				if string(d.Message.Payload) == "C" {
					if d.Seq != 0 {
						e.Errorf("QoS 0 has number %d, nothing of it is kept", d.Seq)
					}
					continue
				}
				if d.Seq <= last {
					e.Errorf("number %d after %d", d.Seq, last)
				}
				last = d.Seq
				m, err := e.again(e.Root+"/x", d.Seq)
				if err != nil {
					e.Fatal(err)
				}
				if diff := same(m, d.Message); diff != "" {
					e.Error(diff)
				}
				in.taken = append(in.taken, d)
			}
			for _, seq := range []uint64{0, last + 1000} {
				if m, err := e.again(e.Root+"/x", seq); !errors.Is(err, store.ErrNotFound) {
					e.Errorf("number %d: %v, %v; want ErrNotFound", seq, m, err)
				}
			}
			in.Close()
			in = e.Subscribe(e.Root+"/x", 2, true)
			in.Keep = true
			in.Want("both", "A", "B")
			if again := in.taken[1].Seq; again != last {
				e.Errorf("B has number %d in the next feed, it was %d", again, last)
			}
			e.forget(e.Client, in)
		}},
	}
}
