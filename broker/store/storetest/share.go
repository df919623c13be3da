package storetest

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"inflight/broker/store"
)

// sharing is what shared subscriptions promise beyond what others do.
func sharing() []check {
	shared := func(e *Env) string { return "$share/g/" + e.Root + "/#" }
	member := func(e *Env, i int) string { return fmt.Sprintf("%s-%d", e.Client, i) }
	members := func(e *Env, n int, qos byte, durable bool) (all []*Inbox) {
		for i := range n {
			all = append(all, e.SubscribeAs(member(e, i), shared(e), qos, durable))
		}
		return all
	}
	forget := func(e *Env, all ...*Inbox) {
		for i, in := range all {
			if in != nil {
				e.forget(member(e, i), in)
			}
		}
	}
	publish2 := func(e *Env, payload string) {
		m := e.Msg(2, payload)
		e.Release(1, e.Hold(1, m), m)
	}
	// inTurn wants the numbers from 1 to n, each at one member, every one taking its turn.
	inTurn := func(e *Env, all []*Inbox, n int) {
		e.Helper()
		for i, in := range all {
			last := 0
			for range n / len(all) {
				d := in.Next("its turn")
				k, _ := strconv.Atoi(string(d.Message.Payload))
				if last > 0 && k != last+len(all) {
					e.Errorf("member %d of %d: %d after %d", i+1, len(all), k, last)
				}
				last = k
				d.Settle()
			}
		}
	}
	// slow opens the feed of a member whose session takes no message before the feed is closed, which is what end does.
	slow := func(e *Env, i int, durable bool, then func(store.Delivery)) (end func()) {
		e.Helper()
		handed, over := make(chan struct{}, 1024), make(chan struct{})
		feed, err := e.S.Subscribe(e.context(), member(e, i), store.Subscription{Filter: shared(e), QoS: 2}, durable, func(d store.Delivery) {
			handed <- struct{}{}
			<-over
			then(d)
		})
		if err != nil {
			e.Fatal(err)
		}
		return func() {
			<-handed
			time.AfterFunc(20*time.Millisecond, func() { close(over) })
			feed.Close()
		}
	}
	row := func(name string, run func(e *Env)) check {
		return check{"a shared subscription " + name, run}
	}
	return []check{
		row("hands out in turn", func(e *Env) {
			for name, publish := range map[string]func(payload string){
				"QoS 0": func(payload string) { e.Transient(e.Root+"/x", payload) },
				"QoS 1": func(payload string) { e.Publish(e.Msg(1, payload)) },
				"QoS 2": func(payload string) { publish2(e, payload) },
			} {
				e.Log(name)
				all := members(e, 3, 2, true)
				for _, payload := range numbers(1, 30) {
					publish(payload)
				}
				inTurn(e, all, 30)
				forget(e, all...)
			}
		}),
		row("hands out to QoS 0 as well", func(e *Env) {
			all := members(e, 2, 0, false)
			for _, payload := range numbers(1, 10) {
				e.Publish(e.Msg(1, payload))
			}
			inTurn(e, all, 10)
		}),
		row("is another one than its filter, and than that of another name", func(e *Env) {
			plain := e.SubscribeAs(e.Client, e.Root+"/#", 2, false)
			g := e.SubscribeAs(e.Client, shared(e), 2, false)
			h := e.SubscribeAs(e.Client, strings.Replace(shared(e), "/g/", "/h/", 1), 2, false)
			for _, payload := range numbers(1, 5) {
				e.Publish(e.Msg(1, payload))
			}
			all := []*Inbox{plain, g, h}
			for _, in := range all {
				in.Want("all of them", numbers(1, 5)...)
			}
			e.Publish(e.Msg(1, "end"))
			for _, in := range all {
				in.Want("once each", "end")
			}
		}),
		row("waits while no member is connected", func(e *Env) {
			all := members(e, 2, 2, true)
			all[0].Close()
			all[1].Close()
			for _, payload := range numbers(1, 20) {
				e.Publish(e.Msg(1, payload))
			}
			publish2(e, "21")
			e.Transient(e.Root+"/x", "missed")
			in := e.SubscribeAs(member(e, 1), shared(e), 2, true)
			in.wantAny("what waited", numbers(1, 21)...)
			in.Quiet("once each", e.Root+"/x")
			forget(e, all[0], in)
		}),
		row("leaves a member what it took, and gives the others the rest", func(e *Env) {
			all := members(e, 2, 2, true)
			all[0].Keep, all[1].Keep = true, true
			publish2(e, "1")
			publish2(e, "2")
			first, second := all[0].Next("one of two"), all[1].Next("the other")
			all[0].Close()
			for _, payload := range numbers(3, 6) {
				publish2(e, payload)
			}
			all[1].Want("all that come while it is alone", numbers(3, 6)...)
			second.Settle()
			again := e.SubscribeAs(member(e, 0), shared(e), 2, true)
			again.Want("what it had not settled", string(first.Message.Payload))
			forget(e, again, all[1])
		}),
		row("does not repeat what was settled", func(e *Env) {
			in := e.SubscribeAs(member(e, 0), shared(e), 2, true)
			for i := range 5 {
				publish2(e, fmt.Sprint(i))
				in.Want("settled at the last moment", fmt.Sprint(i))
				in.Close()
				in = e.SubscribeAs(member(e, 0), shared(e), 2, true)
			}
			in.Quiet("nothing comes again", e.Root+"/x")
			forget(e, in)
		}),
		row("gives no member QoS 2 that another one took", func(e *Env) {
			all := members(e, 2, 2, true)
			all[0].Keep = true
			publish2(e, "1")
			publish2(e, "2")
			lost := all[0].Next("one of two")
			other := all[1].Next("the other")
			other.Settle()
			all[0].Close()
			if err := e.S.Unsubscribe(e.context(), member(e, 0), shared(e)); err != nil {
				e.Fatal(err)
			}
			all[1].Quiet(fmt.Sprintf("not %s", lost.Message.Payload), e.Root+"/x")
			forget(e, nil, all[1])
		}),
		row("gives others what a member took and did not send", func(e *Env) {
			end := slow(e, 0, false, func(d store.Delivery) { d.Back() })
			other := e.SubscribeAs(member(e, 1), shared(e), 2, false)
			publish2(e, "1")
			publish2(e, "2")
			other.Next("its turn").Settle()
			end()
			if d := other.Next("what came back"); d.Message.QoS != 2 {
				e.Errorf("got %q at QoS %d", d.Message.Payload, d.Message.QoS)
			}
			other.Quiet("once", e.Root+"/x")
		}),
		row("gives no member what the next feed of another one has", func(e *Env) {
			all := members(e, 2, 2, true)
			all[0].Keep = true
			publish2(e, "1")
			publish2(e, "2")
			first := all[0].Next("one of two")
			all[1].Next("the other").Settle()
			all[0].Close()
			all[0] = e.SubscribeAs(member(e, 0), shared(e), 2, true)
			all[0].Want("what it had taken", string(first.Message.Payload))
			first.Back() // by a session that was slow to say so
			all[1].Quiet("it is another's", e.Root+"/x")
			forget(e, all...)
		}),
		row("leaves a member what its feed before had, whatever became of the next", func(e *Env) {
			all := members(e, 2, 2, true)
			all[0].Keep = true
			var had []string
			for i := range 8 {
				publish2(e, strconv.Itoa(i))
			}
			for range 4 {
				had = append(had, string(all[0].Next("its turn").Message.Payload))
				all[1].Next("its turn").Settle()
			}
			all[0].Close()
			slow(e, 0, true, func(store.Delivery) {})()
			all[1].Quiet("it is another's", e.Root+"/x")
			all[0] = e.SubscribeAs(member(e, 0), shared(e), 2, true)
			all[0].Want("what it had", had...)
			forget(e, all...)
		}),
		row("ends with its last member", func(e *Env) {
			in := e.SubscribeAs(member(e, 0), shared(e), 2, true)
			in.Close()
			e.Publish(e.Msg(1, "missed"))
			forget(e, in)
			in = e.SubscribeAs(member(e, 0), shared(e), 2, true)
			in.Quiet("nothing old", e.Root+"/x")
			forget(e, in)
		}),
		row("can be read again", func(e *Env) {
			in := e.SubscribeAs(e.Client, shared(e), 2, true)
			in.Keep = true
			publish2(e, "1")
			d := in.Next("unsettled")
			if m, err := e.again(shared(e), d.Seq); err != nil || string(m.Payload) != "1" {
				e.Errorf("got %v, %v", m, err)
			}
			e.forget(e.Client, in)
		}),
		row("survives the store", func(e *Env) {
			if e.fx.Reopen == nil {
				e.Skip("does not apply: nothing survives in this store")
			}
			all := members(e, 2, 2, true)
			all[0].Keep = true
			publish2(e, "1")
			publish2(e, "2")
			first := all[0].Next("one of two")
			all[1].Next("the other").Settle()
			all[0].Close()
			all[1].Close()
			for _, payload := range numbers(3, 8) {
				publish2(e, payload)
			}
			e.S.Close()
			e = e.View(e.fx.Reopen(e.T))
			all[1] = e.SubscribeAs(member(e, 1), shared(e), 2, true)
			all[1].wantAny("what waited for the group", numbers(3, 8)...)
			all[0] = e.SubscribeAs(member(e, 0), shared(e), 2, true)
			all[0].Want("what it had taken", string(first.Message.Payload))
			forget(e, all...)
		}),
	}
}

// wantAny waits for exactly these payloads in any order, and settles them.
func (in *Inbox) wantAny(reason string, payloads ...string) {
	in.e.Helper()
	var got []string
	for range payloads {
		d := in.Next(fmt.Sprintf("%s (so far %s)", reason, list(got)))
		got = append(got, string(d.Message.Payload))
		d.Settle()
	}
	want := append([]string(nil), payloads...)
	sort.Strings(got)
	sort.Strings(want)
	if strings.Join(got, " ") != strings.Join(want, " ") {
		in.e.Fatalf("%s: %s: got %s, want %s", in.name, reason, list(got), list(want))
	}
}
