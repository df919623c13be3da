package storetest

import (
	"errors"
	"fmt"
	"strings"

	"inflight/broker/store"
)

func holding() []check {
	return []check{
		{"a held message is delivered to nobody before its release", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, false)
			zero := e.SubscribeAs(e.Client+"-0", e.Root+"/x", 0, false)
			m := e.Msg(2, "A")
			ref := e.Hold(1, m)
			in.Quiet("held", e.Root+"/x")
			zero.Next("the fence")
			e.Release(1, ref, m)
			in.Want("released", "A")
			zero.Want("QoS 0 as well", "A")
			in.Quiet("once", e.Root+"/x")
			zero.Next("the fence")
		}},
		{"a release delivers once however often it is done", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, false)
			zero := e.SubscribeAs(e.Client+"-0", e.Root+"/x", 0, false)
			one := e.SubscribeAs(e.Client+"-1", e.Root+"/x", 1, true)
			m := e.Msg(2, "A")
			ref := e.Hold(1, m)
			first, second := e.releasing(e.Client, 1, ref, m), e.releasing(e.Client, 1, ref, m)
			for _, c := range []*call{first, second} {
				if _, _, err := e.wait(c); err != nil {
					// A store may say that it is busy with the first; the client then comes again.
					e.Logf("%s: %v", c.what, err)
				}
			}
			e.Release(1, ref, m)
			for _, x := range []*Inbox{in, zero, one} {
				x.Want("once", "A")
			}
			in.Quiet("only once", e.Root+"/x")
			for _, x := range []*Inbox{zero, one} {
				if d := x.Next("the fence"); !strings.HasPrefix(string(d.Message.Payload), "fence") {
					e.Errorf("%s: got %q again", x.name, d.Message.Payload)
				}
			}
			e.forget(e.Client+"-1", one)
		}},
		{"a held message can be read back as it was", func(e *Env) {
			for i, m := range []*store.Message{
				{Topic: e.Root + "/x", Payload: []byte("x"), QoS: 2},
				{Topic: e.Root + "/x", Payload: []byte("x"), QoS: 2, Retain: true},
				{Topic: e.Root + "/x", QoS: 2},
				{Topic: e.Root + "/a b/.*>%/ü", Payload: []byte{0, 255}, QoS: 2},
				{Topic: e.Root + "/x", Payload: []byte(strings.Repeat("x", 1<<20)), QoS: 2},
			} {
				got, err := e.Fetch(e.Hold(uint16(i+1), m))
				if err != nil {
					e.Fatalf("fetch: %v", err)
				}
				if diff := same(got, m); diff != "" {
					e.Errorf("message %d: %s", i, diff)
				}
			}
			if err := e.S.Forget(e.context(), e.Client); err != nil {
				e.Fatal(err)
			}
		}},
		{"what is not held cannot be read back", func(e *Env) {
			for _, ref := range []store.Ref{0, 1 << 40} {
				if _, err := e.Fetch(ref); !errors.Is(err, store.ErrNotFound) {
					e.Errorf("fetch of ref %d: error %v, want ErrNotFound", ref, err)
				}
			}
			m := e.Msg(2, "A")
			ref := e.Hold(1, m)
			if err := e.S.Forget(e.context(), e.Client); err != nil {
				e.Fatal(err)
			}
			if _, err := e.Fetch(ref); !errors.Is(err, store.ErrNotFound) {
				e.Errorf("fetch after forget: error %v, want ErrNotFound", err)
			}
		}},
		{"held messages are listed oldest first until they are released", func(e *Env) {
			e.WantHeld("nothing yet")
			var held []store.Held
			msgs := make(map[uint16]*store.Message)
			for _, id := range []uint16{9, 1, 65_535, 3} {
				msgs[id] = e.Msg(2, fmt.Sprint(id))
				held = append(held, store.Held{ID: id, Ref: e.Hold(id, msgs[id])})
			}
			e.WantHeld("in the order of the holds", held...)
			e.Release(1, held[1].Ref, msgs[1])
			e.WantHeld("without the released one in the middle", held[0], held[2], held[3])
			e.Release(9, held[0].Ref, msgs[9])
			e.WantHeld("nor the first", held[2], held[3])
			e.Release(3, held[3].Ref, msgs[3])
			e.WantHeld("nor the last", held[2])
			e.Release(65_535, held[2].Ref, msgs[65_535])
			e.WantHeld("nothing is left")
		}},
		{"many held messages are listed as few are", func(e *Env) {
			const n = 300
			refs := make([]store.Ref, n)
			msgs := make([]*store.Message, n)
			calls := make([]*call, n)
			for i := range n {
				msgs[i] = e.Msg(2, fmt.Sprint(i))
				calls[i] = e.holding(e.Client, uint16(n-i), msgs[i])
			}
			for i, c := range calls {
				var err error
				if refs[i], _, err = e.wait(c); err != nil {
					e.Fatal(err)
				}
			}
			var want []store.Held
			for i := range n {
				if i%3 == 0 {
					calls[i] = e.releasing(e.Client, uint16(n-i), refs[i], msgs[i])
				} else {
					want = append(want, store.Held{ID: uint16(n - i), Ref: refs[i]})
				}
			}
			for i := 0; i < n; i += 3 {
				if _, _, err := e.wait(calls[i]); err != nil {
					e.Fatal(err)
				}
			}
			e.WantHeld("oldest first, without the released ones", want...)
			if err := e.S.Forget(e.context(), e.Client); err != nil {
				e.Fatal(err)
			}
		}},
		{"what is held belongs to one client", func(e *Env) {
			names := []string{"a", "a.b", "a.*", "*", ">", "a b", "A", "ä", "a/b/#", strings.Repeat("n", 65_535), strings.Repeat("n", 65_534)}
			var held []store.Held
			for i, name := range names {
				ref, _, err := e.wait(e.holding(e.Client+name, uint16(i+1), e.Msg(2, name)))
				if err != nil {
					e.Fatalf("client %.20q: %v", name, err)
				}
				held = append(held, store.Held{ID: uint16(i + 1), Ref: ref})
			}
			for i, name := range names {
				e.wantHeld("its own", e.Client+name, held[i])
			}
			if err := e.S.Forget(e.context(), e.Client+">"); err != nil {
				e.Fatal(err)
			}
			for i, name := range names {
				if name == ">" {
					e.wantHeld("forgotten", e.Client+name)
				} else {
					e.wantHeld("another's forget is not its", e.Client+name, held[i])
				}
				_ = e.S.Forget(e.context(), e.Client+name)
			}
		}},
		{"a discarded message is gone and was delivered to nobody", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, false)
			a, b := e.Hold(1, e.Msg(2, "A")), e.Hold(2, e.Msg(2, "B"))
			e.S.Discard(e.Client, a)
			e.WantHeld("the other stays", store.Held{ID: 2, Ref: b})
			e.S.Discard(e.Client, a) // again
			e.S.Discard(e.Client, 0)
			e.S.Discard(e.Client+"-unknown", b)
			e.WantHeld("the other stays", store.Held{ID: 2, Ref: b})
			in.Quiet("nobody saw it", e.Root+"/x")
			e.S.Discard(e.Client, b)
			e.WantHeld("nothing is left")
		}},
		{"forget drops everything held, and the client may go on", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, false)
			if err := e.S.Forget(e.context(), e.Client); err != nil {
				e.Fatalf("forget of nothing: %v", err)
			}
			for id := uint16(1); id <= 5; id++ {
				e.Hold(id, e.Msg(2, "old"))
			}
			if err := e.S.Forget(e.context(), e.Client); err != nil {
				e.Fatal(err)
			}
			e.WantHeld("forgotten")
			m := e.Msg(2, "new")
			ref := e.Hold(3, m)
			e.WantHeld("RES-08 the new one only", store.Held{ID: 3, Ref: ref})
			e.Release(3, ref, m)
			in.Want("the new one only", "new")
			in.Quiet("the old ones never", e.Root+"/x")
			e.WantHeld("nothing is left")
		}},
		{"the newest copy of an identifier wins", func(e *Env) {
			a := e.Hold(7, e.Msg(2, "A"))
			other := e.Hold(8, e.Msg(2, "other"))
			mb := e.Msg(2, "B")
			b := e.Hold(7, mb)
			if a == b {
				e.Fatalf("two holds have the ref %d", a)
			}
			e.WantHeld("the newer one", store.Held{ID: 8, Ref: other}, store.Held{ID: 7, Ref: b})
			got, err := e.Fetch(b)
			if err != nil {
				e.Fatal(err)
			}
			if diff := same(got, mb); diff != "" {
				e.Error(diff)
			}
			_ = e.S.Forget(e.context(), e.Client)
		}},
		{"an identifier may be used again while the old copy's discard is pending", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, false)
			var want []string
			for i := range 120 {
				payload := fmt.Sprint(i)
				m := e.Msg(2, payload)
				ref := e.Hold(7, m)
				if i%50 == 0 {
					e.WantHeld("the new copy alone", store.Held{ID: 7, Ref: ref})
				}
				e.Release(7, ref, m)
				if i%50 == 1 {
					e.WantHeld("nothing")
				}
				want = append(want, payload)
			}
			in.Want("Q2I-13 each once, in order", want...)
			in.Quiet("once", e.Root+"/x")
			e.WantHeld("nothing is left")
		}},
		{"an identifier may be used again while an old message is withheld", func(e *Env) {
			first := e.Hold(1, e.Msg(2, "withheld"))
			for i := range 50 {
				m := e.Msg(2, fmt.Sprint(i))
				e.Release(2, e.Hold(2, m), m)
			}
			e.WantHeld("only what was not released", store.Held{ID: 1, Ref: first})
			next := e.Hold(2, e.Msg(2, "next"))
			e.WantHeld("and what is new", store.Held{ID: 1, Ref: first}, store.Held{ID: 2, Ref: next})
			_ = e.S.Forget(e.context(), e.Client)
		}},
		{"a corrupt stored message is an error once and can be discarded", func(e *Env) {
			if e.fx.Garbage == nil {
				e.Skip("does not apply: nothing can be corrupt in this store")
			}
			good := e.Hold(1, e.Msg(2, "good"))
			e.fx.Garbage(e.T, e.Client, 2)
			held, err := e.S.Held(e.context(), e.Client)
			if err != nil || len(held) != 2 || held[0] != (store.Held{ID: 1, Ref: good}) || held[1].ID != 2 {
				e.Fatalf("held %v, %v; want identifiers 1 and 2", held, err)
			}
			if _, err := e.Fetch(held[1].Ref); !errors.Is(err, store.ErrCorrupt) {
				e.Errorf("fetch: error %v, want ErrCorrupt", err)
			}
			e.S.Discard(e.Client, held[1].Ref)
			e.WantHeld("the good one stays", held[0])
			if _, err := e.Fetch(good); err != nil {
				e.Errorf("fetch of the good one: %v", err)
			}
			_ = e.S.Forget(e.context(), e.Client)
		}},
		{"what is held survives the store", func(e *Env) {
			if e.fx.Reopen == nil {
				e.Skip("does not apply: nothing survives in this store")
			}
			ma, mb := e.Msg(2, "A"), e.Msg(2, "B")
			mb.Retain = true
			a, b := e.Hold(1, ma), e.Hold(2, mb)
			mc := e.Msg(2, "C")
			e.Release(3, e.Hold(3, mc), mc)
			e.S.Close()
			e = e.View(e.fx.Reopen(e.T))
			in := e.Subscribe(e.Root+"/x", 2, false)
			e.WantHeld("A and B, not the released C", store.Held{ID: 1, Ref: a}, store.Held{ID: 2, Ref: b})
			got, err := e.Fetch(b)
			if err != nil {
				e.Fatal(err)
			}
			if diff := same(got, mb); diff != "" {
				e.Errorf("RES-03: %s", diff)
			}
			e.Release(2, b, got)
			in.Want("released", "B")
			e.WantHeld("A", store.Held{ID: 1, Ref: a})
			md := e.Msg(2, "D")
			d := e.Hold(2, md)
			e.WantHeld("A and the new D", store.Held{ID: 1, Ref: a}, store.Held{ID: 2, Ref: d})
			e.Release(1, a, ma)
			e.Release(2, d, md)
			in.Want("the rest", "A", "D")
			in.Quiet("once each", e.Root+"/x")
			e.WantHeld("nothing is left")
			in.Close()
		}},
	}
}
