package storetest

import (
	"errors"
	"fmt"
	"math"
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
			if err := e.S.DeleteSession(e.context(), e.Client, math.MaxUint64); err != nil {
				e.Fatal(err)
			}
			missing(e, "deleted", e.Client)
			if err := e.S.DeleteSession(e.context(), e.Client, math.MaxUint64); err != nil {
				e.Errorf("delete of what is not there: %v", err)
			}
			put(e, rec)
			if got := get(e, e.Client); !reflect.DeepEqual(got, rec) {
				e.Errorf("written after delete: got %+v, want %+v", got, rec)
			}
		}},
		{"a session record is a copy", func(e *Env) {
			rec := &store.Session{
				ClientID: e.Client, Node: "n1", Subscriptions: []store.Subscription{{Filter: "a", QoS: 1}},
				Will: &store.Will{Topic: "w", Payload: []byte("gone")},
			}
			put(e, rec)
			rec.Node, rec.Subscriptions[0].Filter, rec.Will.Payload[0] = "changed", "changed", '?'
			got := get(e, e.Client)
			if got.Node != "n1" || got.Subscriptions[0].Filter != "a" || string(got.Will.Payload) != "gone" {
				e.Errorf("the caller's record is the store's: %+v", got)
			}
			got.Subscriptions[0].Filter, got.Will.Topic, got.Will.Payload[0] = "changed", "changed", '?'
			if again := get(e, e.Client); again.Subscriptions[0].Filter != "a" || again.Will.Topic != "w" || string(again.Will.Payload) != "gone" {
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
			if err := e.S.DeleteSession(e.context(), e.Client+"*", math.MaxUint64); err != nil {
				e.Fatal(err)
			}
			missing(e, "deleted", e.Client+"*")
			get(e, e.Client+"a")
		}},
		{"a session record has the will", func(e *Env) {
			expiry, none := uint32(30), uint32(0)
			for reason, will := range map[string]*store.Will{
				"plain":         {Topic: "w"},
				"everything":    {Topic: "ü/w", Payload: []byte{0, 255}, QoS: 2, Retain: true, Delay: 5, Passed: []byte{1, 1}, Expiry: &expiry, Ref: 1<<63 + 1},
				"expires at 0":  {Topic: "w", Payload: []byte("gone"), QoS: 1, Expiry: &none},
				"longest delay": {Topic: "w", Delay: math.MaxUint32},
				"withdrawn":     nil,
			} {
				rec := &store.Session{ClientID: e.Client, Node: "n1", Clean: true, Will: will}
				put(e, rec)
				if got := get(e, e.Client); !reflect.DeepEqual(got, rec) {
					e.Errorf("%s: got %+v, want %+v", reason, got.Will, rec.Will)
				}
			}
		}},
		{"a session record is swapped only for the one it was made from", func(e *Env) {
			swap := func(reason string, rec *store.Session, want error) {
				e.Helper()
				if err := e.S.SwapSession(e.context(), rec); !errors.Is(err, want) {
					e.Fatalf("%s: error %v, want %v", reason, err, want)
				}
			}
			first := &store.Session{ClientID: e.Client, Node: "n1"}
			swap("there is none", first, nil)
			if first.Revision == 0 {
				e.Fatal("the Revision of a record is 0, which stands for none")
			}
			swap("made from none, and there is one", &store.Session{ClientID: e.Client, Node: "n2"}, store.ErrConflict)
			a, b := get(e, e.Client), get(e, e.Client)
			a.Node, b.Node = "a", "b"
			swap("first of two", a, nil)
			swap("second of two", b, store.ErrConflict)
			if got := get(e, e.Client); !reflect.DeepEqual(got, a) {
				e.Fatalf("got %+v, want %+v", got, a)
			}
			a.Node = "a again"
			swap("made from what was swapped in", a, nil)
			put(e, &store.Session{ClientID: e.Client + "*", Node: "another's"})
			stale := *a
			a.Node = "put"
			put(e, a)
			swap("made from what was before a put", &stale, store.ErrConflict)
			if err := e.S.DeleteSession(e.context(), e.Client, a.Revision-1); err != nil {
				e.Fatal(err)
			}
			if got := get(e, e.Client); got.Node != "put" {
				e.Fatalf("a newer record was removed: %+v", got)
			}
			if err := e.S.DeleteSession(e.context(), e.Client, a.Revision); err != nil {
				e.Fatal(err)
			}
			missing(e, "deleted at its revision", e.Client)
			swap("made from what was deleted", a, store.ErrConflict)
			swap("there is none again", &store.Session{ClientID: e.Client, Node: "n3"}, nil)
			if got := get(e, e.Client+"*"); got.Node != "another's" {
				e.Errorf("another client's record: %+v", got)
			}
		}},
		{"of many who swap a session record one succeeds", func(e *Env) {
			rec := &store.Session{ClientID: e.Client}
			put(e, rec)
			for range 5 {
				errs := make(chan error, 8)
				for i := range cap(errs) {
					claim := *rec
					claim.Node = fmt.Sprint(i)
					go func() { errs <- e.S.SwapSession(e.context(), &claim) }()
				}
				won := 0
				for range cap(errs) {
					switch err := <-errs; {
					case err == nil:
						won++
					case !errors.Is(err, store.ErrConflict):
						e.Fatal(err)
					}
				}
				if won != 1 {
					e.Fatalf("%d succeeded, want 1", won)
				}
				rec = get(e, e.Client)
			}
		}},
		{"all session records are listed", func(e *Env) {
			list := func() map[string]string {
				got := make(map[string]string)
				err := e.S.Sessions(e.context(), func(rec *store.Session) bool {
					if rec.Revision == 0 {
						e.Errorf("%s has no Revision", rec.ClientID)
					}
					if strings.HasPrefix(rec.ClientID, e.Client) {
						got[rec.ClientID[len(e.Client):]] += rec.Node
					}
					return true
				})
				if err != nil {
					e.Fatal(err)
				}
				return got
			}
			if got := list(); len(got) > 0 {
				e.Fatalf("got %v, want none", got)
			}
			want := make(map[string]string)
			for i := range 20 {
				name, node := fmt.Sprintf("*.%d", i), fmt.Sprintf("n%d", i)
				want[name] = node
				put(e, &store.Session{ClientID: e.Client + name, Node: "first"})
				put(e, &store.Session{ClientID: e.Client + name, Node: node})
			}
			for _, gone := range []string{"*.0", "*.7", "*.19"} {
				if err := e.S.DeleteSession(e.context(), e.Client+gone, math.MaxUint64); err != nil {
					e.Fatal(err)
				}
				delete(want, gone)
			}
			if got := list(); !reflect.DeepEqual(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			seen := 0
			if err := e.S.Sessions(e.context(), func(*store.Session) bool { seen++; return seen < 3 }); err != nil || seen != 3 {
				e.Errorf("%d records, %v: want to stop after three", seen, err)
			}
		}},
		{"a session record survives the store", func(e *Env) {
			if e.fx.Reopen == nil {
				e.Skip("does not apply: nothing survives in this store")
			}
			rec := &store.Session{ClientID: e.Client, Node: "n1", Subscriptions: []store.Subscription{{Filter: "a", QoS: 1}}}
			put(e, rec)
			put(e, &store.Session{ClientID: e.Client + "-gone"})
			if err := e.S.DeleteSession(e.context(), e.Client+"-gone", math.MaxUint64); err != nil {
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
