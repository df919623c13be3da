package storetest

import "inflight/broker/store"

func restarting() []check {
	return []check{
		{"what was acknowledged is there after the node restarts", func(e *Env) {
			if e.fx.Restart == nil {
				e.Skip("nothing survives, or the other nodes have it")
			}
			in := e.Subscribe(e.Root+"/#", 2, true)
			e.Publish(e.Msg(1, "1"))
			e.Publish(e.Msg(1, "2"))
			in.Want("before", "1")
			in.Close()
			a, b := e.Msg(2, "held"), e.Msg(2, "3")
			ra, rb := e.Hold(1, a), e.Hold(2, b)
			e.Release(2, rb, b)
			if err := e.S.PutSession(e.context(), &store.Session{ClientID: e.Client, Node: "n1"}); err != nil {
				e.Fatal(err)
			}

			e = e.View(e.fx.Restart(e.T))
			if rec, err := e.S.Session(e.context(), e.Client); err != nil || rec.Node != "n1" {
				e.Errorf("session %+v, %v", rec, err)
			}
			e.WantHeld("RES-13 what was not released", store.Held{ID: 1, Ref: ra})
			in = e.Subscribe(e.Root+"/#", 2, true)
			in.Want("the subscription goes on", "2", "3")
			got, err := e.Fetch(ra)
			if err != nil {
				e.Fatal(err)
			}
			e.Release(1, ra, got)
			in.Want("released after the restart", "held")
			e.Release(2, rb, b) // PUBREL again, by a client that never saw its PUBCOMP
			in.Quiet("E2E-05 delivered once", e.Root+"/x")
			e.WantHeld("nothing")
			in.Close()
		}},
	}
}
