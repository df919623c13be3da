package storetest

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"inflight/broker/store"
)

func feeding() []check {
	return []check{
		{"a durable feed keeps its place while it is closed", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, true)
			e.Publish(e.Msg(1, "1"))
			in.Want("open", "1")
			in.Close()
			for _, payload := range numbers(2, 50) {
				e.Publish(e.Msg(1, payload))
			}
			m := e.Msg(2, "51")
			e.Release(1, e.Hold(1, m), m)
			in = e.Subscribe(e.Root+"/x", 2, true)
			e.Publish(e.Msg(1, "52"))
			in.Want("ORD-04 the backlog before what is new, in order", numbers(2, 52)...)
			in.Quiet("once each", e.Root+"/x")
			e.forget(e.Client, in)
		}},
		{"what was not settled comes again, what was settled does not", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, true)
			in.Keep = true
			for _, payload := range numbers(1, 6) {
				e.Publish(e.Msg(1, payload))
			}
			in.Want("all", numbers(1, 6)...)
			in.taken[0].Settle()
			in.taken[1].Settle()
			in.Close()
			in = e.Subscribe(e.Root+"/x", 2, true)
			in.Want("from the third on, in order", numbers(3, 6)...)
			in.Quiet("once each", e.Root+"/x")
			e.forget(e.Client, in)
		}},
		{"what was settled out of order does not come again", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, true)
			// Another subscriber that wants the messages keeps them in the store, where there is one.
			slow := e.SubscribeAs(e.Client+"-slow", e.Root+"/x", 2, true)
			in.Keep, slow.Keep = true, true
			for _, payload := range numbers(1, 6) {
				e.Publish(e.Msg(1, payload))
			}
			in.Want("all", numbers(1, 6)...)
			slow.Want("all", numbers(1, 6)...)
			for _, i := range []int{1, 3, 4} { // 2, 4, 5
				in.taken[i].Settle()
			}
			in.Close()
			in = e.Subscribe(e.Root+"/x", 2, true)
			in.Want("the unsettled ones, in order", "1", "3", "6")
			in.Quiet("not the settled ones", e.Root+"/x")
			e.forget(e.Client, in)
			e.forget(e.Client+"-slow", slow)
		}},
		{"settling at the last moment counts", func(e *Env) {
			slow := e.SubscribeAs(e.Client+"-slow", e.Root+"/x", 2, true)
			slow.Keep = true
			for i := range 10 {
				in := e.Subscribe(e.Root+"/x", 2, true)
				payload := fmt.Sprint(i)
				e.Publish(e.Msg(1, payload))
				in.Want("settled and closed at once", payload)
				in.Close()
			}
			in := e.Subscribe(e.Root+"/x", 2, true)
			in.Quiet("no settled one comes again", e.Root+"/x")
			e.forget(e.Client, in)
			e.forget(e.Client+"-slow", slow)
		}},
		{"settling late, after the feed was closed and opened again", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, true)
			in.Keep = true
			e.Publish(e.Msg(1, "A"))
			in.Want("open", "A")
			old := in
			in.Close()
			in = e.Subscribe(e.Root+"/x", 2, true)
			in.Want("it was not settled", "A")
			old.taken[0].Settle() // does no harm
			e.Publish(e.Msg(1, "B"))
			in.Want("goes on", "B")
			in.Quiet("once", e.Root+"/x")
			e.forget(e.Client, in)
		}},
		{"a new subscription gets nothing from before it", func(e *Env) {
			// Somebody who is away keeps the old messages in the store, where there is one.
			away := e.SubscribeAs(e.Client+"-away", e.Root+"/#", 2, true)
			away.Close()
			e.Publish(e.Msg(1, "old"))
			m := e.Msg(2, "old too")
			e.Release(1, e.Hold(1, m), m)
			for qos := range byte(3) {
				in := e.Subscribe(e.Root+"/x", qos, qos == 2)
				in.Quiet("nothing old", e.Root+"/x")
				e.forget(e.Client, in)
			}
			e.forget(e.Client+"-away", away)
		}},
		{"a feed that is not durable keeps nothing", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, false)
			in.Keep = true
			e.Publish(e.Msg(1, "unsettled"))
			in.Want("open", "unsettled")
			in.Close()
			e.Publish(e.Msg(1, "missed"))
			in = e.Subscribe(e.Root+"/x", 2, false)
			in.Quiet("nothing old", e.Root+"/x")
		}},
		{"a QoS 0 subscription keeps nothing", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 0, true)
			e.Publish(e.Msg(1, "A"))
			in.Want("open", "A")
			in.Close()
			e.Publish(e.Msg(1, "missed"))
			e.Transient(e.Root+"/x", "missed as well")
			in = e.Subscribe(e.Root+"/x", 0, true)
			in.Quiet("nothing old", e.Root+"/x")
			e.forget(e.Client, in)
		}},
		{"a QoS 0 publication is for who is there", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, true)
			e.Transient(e.Root+"/x", "A")
			in.Want("open", "A")
			in.Close()
			e.Transient(e.Root+"/x", "missed")
			in = e.Subscribe(e.Root+"/x", 2, true)
			in.QuietTransient("nothing old", e.Root+"/x")
			in.Quiet("nor another way", e.Root+"/x")
			e.forget(e.Client, in)
		}},
		{"QoS 0 publications come in order", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, false)
			for _, payload := range numbers(1, 500) {
				e.Transient(e.Root+"/x", payload)
			}
			in.Want("in order", numbers(1, 500)...)
			in.QuietTransient("once each", e.Root+"/x")
		}},
		{"unsubscribe forgets the place", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, true)
			in.Keep = true
			e.Publish(e.Msg(1, "unsettled"))
			in.Want("open", "unsettled")
			in.Close()
			e.Publish(e.Msg(1, "missed"))
			e.forget(e.Client, in)
			in = e.Subscribe(e.Root+"/x", 2, true)
			in.Quiet("nothing old", e.Root+"/x")
			e.forget(e.Client, in)
			if err := e.S.Unsubscribe(e.context(), e.Client, e.Root+"/never"); err != nil {
				e.Errorf("unsubscribe of what is not subscribed: %v", err)
			}
		}},
		{"the places of two filters of a client are two", func(e *Env) {
			x, all := e.Subscribe(e.Root+"/x", 1, true), e.Subscribe(e.Root+"/#", 2, true)
			x.Close()
			e.Publish(e.Msg(1, "A"))
			all.Want("open", "A")
			e.forget(e.Client, all)
			x = e.Subscribe(e.Root+"/x", 1, true)
			x.Want("kept", "A")
			e.forget(e.Client, x)
		}},
		{"a feed that is not taken holds up nobody else", func(e *Env) {
			gate := make(chan struct{})
			var got []string
			done := make(chan struct{})
			const n = 150
			var handed atomic.Int64
			feed, err := e.S.Subscribe(e.context(), e.Client, store.Subscription{Filter: e.Root + "/x", QoS: 2}, true, func(d store.Delivery) {
				handed.Add(1)
				<-gate
				got = append(got, string(d.Message.Payload))
				d.Settle()
				if len(got) == n {
					close(done)
				}
			})
			if err != nil {
				e.Fatal(err)
			}
			other := e.SubscribeAs(e.Client+"-other", e.Root+"/x", 2, false)
			for _, payload := range numbers(1, n) {
				e.Publish(e.Msg(1, payload))
			}
			other.Want("the other feed goes on", numbers(1, n)...)
			if h := handed.Load(); h > 1 {
				e.Errorf("%d deliveries are under way in one feed, want one at a time", h)
			}
			close(gate)
			select {
			case <-done:
			case <-time.After(patience):
				e.Fatal("the deliveries did not go on")
			}
			if list(got) != list(numbers(1, n)) || strings.Join(got, " ") != strings.Join(numbers(1, n), " ") {
				e.Errorf("got %s, want 1 to %d in order", list(got), n)
			}
			feed.Close()
			_ = e.S.Unsubscribe(e.context(), e.Client, e.Root+"/x")
		}},
		{"a feed can be closed while a delivery is not taken, and twice", func(e *Env) {
			gate, entered := make(chan struct{}), make(chan struct{}, 16)
			feed, err := e.S.Subscribe(e.context(), e.Client, store.Subscription{Filter: e.Root + "/x", QoS: 2}, true, func(store.Delivery) {
				entered <- struct{}{}
				<-gate
			})
			if err != nil {
				e.Fatal(err)
			}
			e.Publish(e.Msg(1, "A"))
			<-entered
			feed.Close()
			feed.Close()
			e.Publish(e.Msg(1, "B"))
			in := e.Subscribe(e.Root+"/x", 2, true)
			in.Want("both, as neither was settled", "A", "B")
			close(gate)
			in.Quiet("once each", e.Root+"/x")
			e.forget(e.Client, in)
		}},
		{"a durable feed survives the store", func(e *Env) {
			if e.fx.Reopen == nil {
				e.Skip("does not apply: nothing survives in this store")
			}
			in := e.Subscribe(e.Root+"/#", 2, true)
			in.Keep = true
			for _, payload := range numbers(1, 4) {
				e.Publish(e.Msg(1, payload))
			}
			in.Want("open", numbers(1, 4)...)
			in.taken[0].Settle()
			in.taken[1].Settle()
			in.Close()
			m := e.Msg(2, "5")
			e.Release(1, e.Hold(1, m), m)
			e.S.Close()
			e = e.View(e.fx.Reopen(e.T))
			e.Publish(e.Msg(1, "6"))
			in = e.Subscribe(e.Root+"/#", 2, true)
			in.Want("what is unsettled and what was missed", numbers(3, 6)...)
			in.Quiet("once each", e.Root+"/x")
			e.forget(e.Client, in)
			in.Close()
		}},
	}
}
