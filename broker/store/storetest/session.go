package storetest

import (
	"errors"
	"reflect"
	"strings"
	"time"

	"inflight/broker/store"
)

func sessions() []check {
	get := func(e *Env, client string) *store.Session {
		e.Helper()
		rec, err := e.S.Session(e.context(), client)
		if err != nil {
			e.Fatalf("session %.20q: %v", client, err)
		}
		return rec
	}
	put := func(e *Env, rec *store.Session) {
		e.Helper()
		if err := e.S.PutSession(e.context(), rec); err != nil {
			e.Fatalf("put session %.20q: %v", rec.ClientID, err)
		}
	}
	missing := func(e *Env, reason, client string) {
		e.Helper()
		if rec, err := e.S.Session(e.context(), client); !errors.Is(err, store.ErrNotFound) {
			e.Errorf("%s: session %.20q: %v, %v; want ErrNotFound", reason, client, rec, err)
		}
	}
	return []check{
		{"a session record is read as it was written", func(e *Env) {
			missing(e, "never written", e.Client)
			rec := &store.Session{
				ClientID: e.Client, Node: "n1", Updated: time.Date(2025, 1, 2, 3, 4, 5, 678, time.UTC),
				Subscriptions: []store.Subscription{{Filter: "a/#", QoS: 2}, {Filter: "$SYS/+/\"\\ü", QoS: 0}},
			}
			put(e, rec)
			if got := get(e, e.Client); !reflect.DeepEqual(got, rec) {
				e.Errorf("got %+v, want %+v", got, rec)
			}
			next := &store.Session{ClientID: e.Client, Node: "n2", Clean: true, Updated: rec.Updated.Add(time.Second)}
			put(e, next)
			if got := get(e, e.Client); !reflect.DeepEqual(got, next) {
				e.Errorf("written again: got %+v, want %+v", got, next)
			}
			if err := e.S.DeleteSession(e.context(), e.Client); err != nil {
				e.Fatal(err)
			}
			missing(e, "deleted", e.Client)
			if err := e.S.DeleteSession(e.context(), e.Client); err != nil {
				e.Errorf("delete of what is not there: %v", err)
			}
			put(e, rec)
			if got := get(e, e.Client); !reflect.DeepEqual(got, rec) {
				e.Errorf("written after delete: got %+v, want %+v", got, rec)
			}
		}},
		{"a session record is a copy", func(e *Env) {
			rec := &store.Session{ClientID: e.Client, Node: "n1", Subscriptions: []store.Subscription{{Filter: "a", QoS: 1}}}
			put(e, rec)
			rec.Node, rec.Subscriptions[0].Filter = "changed", "changed"
			got := get(e, e.Client)
			if got.Node != "n1" || got.Subscriptions[0].Filter != "a" {
				e.Errorf("the caller's record is the store's: %+v", got)
			}
			got.Subscriptions[0].Filter = "changed"
			if again := get(e, e.Client); again.Subscriptions[0].Filter != "a" {
				e.Errorf("the reader's record is the store's: %+v", again)
			}
		}},
		{"a session record belongs to one client", func(e *Env) {
			names := []string{"a", "a.b", "a.*", "*", ">", "a b", "A", "ä", "", strings.Repeat("n", 65_535)}
			for _, name := range names {
				put(e, &store.Session{ClientID: e.Client + name, Node: name})
			}
			for _, name := range names {
				if got := get(e, e.Client+name); got.Node != name || got.ClientID != e.Client+name {
					e.Errorf("%.20q: got the record of %.20q", name, got.ClientID)
				}
			}
			if err := e.S.DeleteSession(e.context(), e.Client+"*"); err != nil {
				e.Fatal(err)
			}
			missing(e, "deleted", e.Client+"*")
			get(e, e.Client+"a")
		}},
		{"a session record survives the store", func(e *Env) {
			if e.fx.Reopen == nil {
				e.Skip("nothing survives in this store")
			}
			rec := &store.Session{ClientID: e.Client, Node: "n1", Subscriptions: []store.Subscription{{Filter: "a", QoS: 1}}}
			put(e, rec)
			put(e, &store.Session{ClientID: e.Client + "-gone"})
			if err := e.S.DeleteSession(e.context(), e.Client+"-gone"); err != nil {
				e.Fatal(err)
			}
			e.S.Close()
			e = e.View(e.fx.Reopen(e.T))
			if got := get(e, e.Client); !reflect.DeepEqual(got, rec) {
				e.Errorf("got %+v, want %+v", got, rec)
			}
			missing(e, "deleted", e.Client+"-gone")
		}},
		{"the durability has a name", func(e *Env) {
			switch d := e.S.Durability(); d {
			case "memory", "file", "file+sync":
			default:
				e.Errorf("durability %q, want memory, file or file+sync", d)
			}
		}},
	}
}
