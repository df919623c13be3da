package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"inflight/broker/store"
)

// kept makes a message that is to be retained.
func (e *Env) kept(qos byte, topic, payload string) *store.Message {
	return &store.Message{Topic: e.Root + topic, Payload: []byte(payload), QoS: qos, Retain: true}
}

// put gives a message its effect the way its QoS asks for, and waits for it.
func (e *Env) put(m *store.Message) {
	e.Helper()
	switch m.QoS {
	case 0:
		if err := e.S.Transient(m); err != nil {
			e.Fatalf("transient: %v", err)
		}
	case 1:
		e.Publish(m)
	case 2:
		e.Release(1, e.Hold(1, m), m)
	}
}

func (e *Env) retainedEnd() uint64 {
	e.Helper()
	end, err := e.S.RetainedEnd(e.context())
	if err != nil {
		e.Fatalf("end of the retained messages: %v", err)
	}
	return end
}

// wantRetained compares what is retained for a filter, in any order: "/a 1 payload" is topic, QoS and payload.
func (e *Env) wantRetained(reason, filter string, want ...string) {
	e.Helper()
	var got []string
	err := e.S.Retained(e.context(), filter, e.retainedEnd(), func(m *store.Message) bool {
		if !m.Retain {
			e.Errorf("%s: %s: message without Retain", reason, filter)
		}
		got = append(got, fmt.Sprintf("%s %d %s", strings.TrimPrefix(m.Topic, e.Root), m.QoS, m.Payload))
		return true
	})
	if err != nil {
		e.Fatalf("%s: %s: %v", reason, filter, err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		e.Fatalf("%s: %s: retained %q, want %q", reason, filter, got, want)
	}
}

func retaining() []check {
	return []check{
		{"MQTT-3.3.1-5 the last one of a topic is retained, with its QoS", func(e *Env) {
			e.wantRetained("nothing yet", e.Root+"/a")
			for qos := range byte(3) {
				payload := fmt.Sprintf("at %d", qos)
				e.put(e.kept(qos, "/a", payload))
				e.wantRetained("the new one", e.Root+"/a", fmt.Sprintf("/a %d %s", qos, payload))
				e.wantRetained("the new one only", e.Root+"/#", fmt.Sprintf("/a %d %s", qos, payload))
			}
			e.wantRetained("another topic", e.Root+"/b")
			e.wantRetained("a topic below", e.Root+"/a/b")
		}},
		{"a retained message is delivered like any other", func(e *Env) {
			in := e.Subscribe(e.Root+"/a", 2, false)
			for qos := range byte(3) {
				m := e.kept(qos, "/a", fmt.Sprint(qos))
				e.put(m)
				d := in.Next("live")
				if diff := same(d.Message, m); diff != "" || d.Retain {
					e.Errorf("QoS %d: %s; sent for a new subscription: %v", qos, diff, d.Retain)
				}
				d.Settle()
			}
			in.Quiet("once each", e.Root+"/a")
		}},
		{"what is published without Retain replaces nothing", func(e *Env) {
			e.put(e.kept(1, "/x", "A"))
			e.put(e.Msg(1, "B"))
			e.put(e.Msg(2, "C"))
			e.put(e.Msg(0, "D"))
			e.wantRetained("[MQTT-3.3.1-12]", e.Root+"/x", "/x 1 A")
		}},
		{"MQTT-3.3.1-10 an empty one removes it and is delivered", func(e *Env) {
			in := e.Subscribe(e.Root+"/a", 2, false)
			for qos := range byte(3) {
				e.put(e.kept(1, "/a", "A"))
				in.Want("live", "A")
				e.put(e.kept(qos, "/a", ""))
				in.Want("live", "")
				e.wantRetained(fmt.Sprintf("removed at QoS %d", qos), e.Root+"/a")
				e.wantRetained(fmt.Sprintf("removed at QoS %d", qos), e.Root+"/+")
				e.put(e.kept(qos, "/a", "")) // of what is not there
				in.Want("live", "")
			}
			e.put(e.kept(1, "/a", "B"))
			e.wantRetained("a new one", e.Root+"/a", "/a 1 B")
			in.Want("live", "B")
		}},
		{"a held message is not retained before its release", func(e *Env) {
			e.put(e.kept(1, "/a", "old"))
			m := e.kept(2, "/a", "new")
			ref := e.Hold(7, m)
			e.wantRetained("SUB-05 before PUBREL", e.Root+"/a", "/a 1 old")
			e.Release(7, ref, m)
			e.wantRetained("after PUBREL", e.Root+"/a", "/a 2 new")
			e.put(e.kept(1, "/a", "newer"))
			e.Release(7, ref, m)
			e.wantRetained("a repeated release puts nothing back", e.Root+"/a", "/a 1 newer")
		}},
		{"the last of many in flight is retained", func(e *Env) {
			var calls []*call
			for _, payload := range numbers(1, 200) {
				calls = append(calls, e.publishing(e.kept(1, "/a", payload)))
			}
			e.wantRetained("what was asked for before is seen", e.Root+"/a", "/a 1 200")
			for _, c := range calls {
				if _, _, err := e.wait(c); err != nil {
					e.Fatal(err)
				}
			}
			e.wantRetained("and stays", e.Root+"/#", "/a 1 200")
		}},
		{"MQTT-3.3.1-6 wildcards find each topic", func(e *Env) {
			for _, topic := range []string{"", "/a", "/a/b", "/a/c", "//", `/"\ü.*> `} {
				e.put(e.kept(1, topic, "x"))
			}
			for filter, want := range map[string][]string{
				"/#":    {" 1 x", "/a 1 x", "/a/b 1 x", "/a/c 1 x", "// 1 x", `/"\ü.*>  1 x`},
				"/+":    {"/a 1 x", `/"\ü.*>  1 x`},
				"/a/+":  {"/a/b 1 x", "/a/c 1 x"},
				"/a/#":  {"/a 1 x", "/a/b 1 x", "/a/c 1 x"},
				"/+/b":  {"/a/b 1 x"},
				"/a/b":  {"/a/b 1 x"},
				"/none": nil, "/none/#": nil,
				`/"\ü.*> `: {`/"\ü.*>  1 x`},
			} {
				e.wantRetained("filter", e.Root+filter, want...)
			}
		}},
		{"MQTT-4.7.2-1 a wildcard at the start finds no reserved topic", func(e *Env) {
			reserved := "$" + e.Root
			e.put(&store.Message{Topic: reserved + "/a", Payload: []byte("x"), QoS: 1, Retain: true})
			for _, filter := range []string{"#", "+/a"} {
				if err := e.S.Retained(e.context(), filter, e.retainedEnd(), func(m *store.Message) bool {
					if strings.HasPrefix(m.Topic, "$") {
						e.Errorf("%s: found %s", filter, m.Topic)
					}
					return true
				}); err != nil {
					e.Fatal(err)
				}
			}
			n := 0
			if err := e.S.Retained(e.context(), reserved+"/#", e.retainedEnd(), func(*store.Message) bool { n++; return true }); err != nil || n != 1 {
				e.Errorf("by its name: %d, %v", n, err)
			}
			e.put(&store.Message{Topic: reserved + "/a", QoS: 1, Retain: true})
		}},
		{"what changes after the end is left out", func(e *Env) {
			e.put(e.kept(1, "/a", "A"))
			end := e.retainedEnd()
			e.put(e.kept(1, "/b", "B"))
			for filter, want := range map[string]int{"/a": 1, "/b": 0, "/#": 1, "/+": 1} {
				n := 0
				if err := e.S.Retained(e.context(), e.Root+filter, end, func(*store.Message) bool { n++; return true }); err != nil || n != want {
					e.Errorf("%s: %d messages, %v; want %d", filter, n, err, want)
				}
			}
		}},
		{"reading ends when it is told to", func(e *Env) {
			for _, topic := range []string{"/a", "/b", "/c"} {
				e.put(e.kept(1, topic, "x"))
			}
			n := 0
			if err := e.S.Retained(e.context(), e.Root+"/#", e.retainedEnd(), func(*store.Message) bool { n++; return n < 2 }); err != nil || n != 2 {
				e.Errorf("%d messages, %v; want 2", n, err)
			}
			ctx, cancel := context.WithCancel(e.context())
			n = 0
			err := e.S.Retained(ctx, e.Root+"/#", e.retainedEnd(), func(*store.Message) bool { n++; cancel(); return true })
			if !errors.Is(err, context.Canceled) || n != 1 {
				e.Errorf("cancelled after the first: %d messages, %v", n, err)
			}
		}},
		{"a retained message survives the store", func(e *Env) {
			if e.fx.Reopen == nil {
				e.Skip("does not apply: nothing survives in this store")
			}
			e.put(e.kept(2, "/a", "A"))
			e.put(e.kept(1, "/b", "B"))
			e.put(e.kept(1, "/b", ""))
			e.S.Close()
			e = e.View(e.fx.Reopen(e.T))
			e.wantRetained("as it was", e.Root+"/#", "/a 2 A")
		}},
	}
}
