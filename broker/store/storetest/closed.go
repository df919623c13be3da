package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"inflight/broker/store"
)

func closing() []check {
	return []check{
		{"a closed store refuses everything", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, false)
			m := e.Msg(2, "A")
			ref := e.Hold(1, m)
			in.Close()
			e.S.Close()
			e.S.Close() // again
			for _, c := range []*call{
				e.publishing(m), e.holding(e.Client, 2, m), e.releasing(e.Client, 1, ref, m), e.fetching(ref),
			} {
				if _, _, err := e.wait(c); !errors.Is(err, store.ErrClosed) {
					e.Errorf("%s: error %v, want ErrClosed", c.what, err)
				}
			}
			e.S.Discard(e.Client, ref) // has nobody to tell
			ctx := e.context()
			for _, tc := range []struct {
				name string
				do   func() error
			}{
				{"transient", func() error { return e.S.Transient(m) }},
				{"held", func() error { _, err := e.S.Held(ctx, e.Client); return err }},
				{"forget", func() error { return e.S.Forget(ctx, e.Client) }},
				{"session", func() error { _, err := e.S.Session(ctx, e.Client); return err }},
				{"put session", func() error { return e.S.PutSession(ctx, &store.Session{ClientID: e.Client}) }},
				{"delete session", func() error { return e.S.DeleteSession(ctx, e.Client, 1) }},
				{"swap session", func() error { return e.S.SwapSession(ctx, &store.Session{ClientID: e.Client}) }},
				{"sessions", func() error { return e.S.Sessions(ctx, func(*store.Session) bool { return true }) }},
				{"subscribe", func() error {
					_, err := e.S.Subscribe(ctx, e.Client, store.Subscription{Filter: e.Root, QoS: 2}, true, func(store.Delivery) {})
					return err
				}},
				{"subscribe at QoS 0", func() error {
					_, err := e.S.Subscribe(ctx, e.Client, store.Subscription{Filter: e.Root}, false, func(store.Delivery) {})
					return err
				}},
				{"retained", func() error { return e.S.Retained(ctx, e.Root, 9, func(*store.Message) bool { return true }) }},
				{"retained of a wildcard", func() error { return e.S.Retained(ctx, e.Root+"/#", 9, func(*store.Message) bool { return true }) }},
				{"end of the retained", func() error { _, err := e.S.RetainedEnd(ctx); return err }},
				{"put outbound", func() error { return e.putOutbound(e.Client, []byte("A")) }},
				{"outbound", func() error { _, err := e.S.Outbound(ctx, e.Client); return err }},
				{"again", func() error { _, err := e.again(e.Root+"/x", 1); return err }},
				{"unsubscribe", func() error { return e.S.Unsubscribe(ctx, e.Client, e.Root) }},
			} {
				if err := tc.do(); !errors.Is(err, store.ErrClosed) {
					e.Errorf("%s: error %v, want ErrClosed", tc.name, err)
				}
			}
		}},
		{"operations that are under way when the store is closed are reported once", func(e *Env) {
			const each = 200
			var calls []*call
			var mu sync.Mutex
			var wg sync.WaitGroup
			for g := range 4 {
				wg.Go(func() {
					for i := range each {
						m := e.Msg(2, fmt.Sprintf("%d of %d", i, g))
						c, d := e.holding(e.Client, uint16(g*each+i+1), m), e.publishing(m)
						mu.Lock()
						calls = append(calls, c, d)
						mu.Unlock()
					}
				})
			}
			time.Sleep(time.Millisecond) // so that some are under way
			e.S.Close()
			wg.Wait()
			refs := make(map[store.Ref]bool)
			for _, c := range calls {
				ref, _, err := e.wait(c)
				if err != nil && !errors.Is(err, store.ErrClosed) {
					e.Fatalf("%s: error %v, want none or ErrClosed", c.what, err)
				}
				if err == nil && ref != 0 {
					if refs[ref] {
						e.Fatalf("ref %d was given twice", ref)
					}
					refs[ref] = true
				}
			}
		}},
		{"a feed can be closed after its store", func(e *Env) {
			for _, durable := range []bool{true, false} {
				in := e.SubscribeAs(fmt.Sprint(e.Client, durable), e.Root+"/x", 2, durable)
				defer in.Close()
			}
			e.S.Close()
		}},
	}
}

func concurrency() []check {
	return []check{
		{"many clients at once are each served in their order, once", func(e *Env) {
			const clients, each = 8, 40
			in := e.Subscribe(e.Root+"/#", 2, true)
			var wg sync.WaitGroup
			for c := range clients {
				wg.Go(func() {
					client := fmt.Sprintf("%s-%d", e.Client, c)
					topic := fmt.Sprintf("%s/%d", e.Root, c)
					var calls []*call
					for i := range each {
						m := &store.Message{Topic: topic, Payload: fmt.Appendf(nil, "%d", i), QoS: 2}
						if i%3 == 0 {
							m.QoS = 1
							calls = append(calls, e.publishing(m))
							continue
						}
						id := uint16(i%5 + 1)
						ref, _, err := e.wait(e.holding(client, id, m))
						if err != nil {
							e.Error(err)
							return
						}
						calls = append(calls, e.releasing(client, id, ref, m))
						if i%7 == 0 {
							if _, err := e.S.Held(e.context(), client); err != nil {
								e.Error(err)
							}
						}
					}
					for _, c := range calls {
						if _, _, err := e.wait(c); err != nil {
							e.Error(err)
						}
					}
					e.wantHeldNothing(client)
				})
			}
			next := make(map[string]int)
			for range clients * each {
				d := in.Next(fmt.Sprint("so far ", next))
				d.Settle()
				if got := string(d.Message.Payload); got != fmt.Sprint(next[d.Message.Topic]) {
					e.Errorf("%s: got %s, want %d", d.Message.Topic, got, next[d.Message.Topic])
				}
				next[d.Message.Topic]++
			}
			wg.Wait()
			in.Quiet("once each", e.Root+"/x")
			e.forget(e.Client, in)
		}},
		{"feeds come and go while messages are published", func(e *Env) {
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for c := range 4 {
				client := fmt.Sprintf("%s-%d", e.Client, c)
				wg.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						default:
						}
						sub := store.Subscription{Filter: e.Root + "/#", QoS: byte(i % 3)}
						feed, err := e.S.Subscribe(e.context(), client, sub, c%2 == 0, func(d store.Delivery) { d.Settle() })
						if err != nil {
							e.Error(err)
							return
						}
						feed.Close()
						if c%2 == 0 {
							if err := e.S.Unsubscribe(e.context(), client, sub.Filter); err != nil {
								e.Error(err)
								return
							}
						}
					}
				})
			}
			in := e.Subscribe(e.Root+"/x", 2, true)
			for _, payload := range numbers(1, 40) {
				e.Publish(e.Msg(1, payload))
			}
			in.Want("a feed that stays misses nothing", numbers(1, 40)...)
			close(stop)
			wg.Wait()
			in.Quiet("once each", e.Root+"/x")
			e.forget(e.Client, in)
		}},
	}
}

func (e *Env) wantHeldNothing(client string) {
	held, err := e.S.Held(e.context(), client)
	if err != nil || len(held) != 0 {
		e.Errorf("%s: held %v, %v; want nothing", client, held, err)
	}
}
