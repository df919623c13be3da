package storetest

import (
	"fmt"
	"strings"
	"time"

	"inflight/broker/store"
)

func publishing() []check {
	return []check{
		{"a message arrives as it was published", func(e *Env) {
			in := e.Subscribe(e.Root+"/#", 2, false)
			for _, m := range []*store.Message{
				{Topic: e.Root + "/plain", Payload: []byte("x"), QoS: 1},
				{Topic: e.Root + "/retain", Payload: []byte("x"), QoS: 1, Retain: true},
				{Topic: e.Root + "/empty", QoS: 1},
				{Topic: e.Root + "/bytes", Payload: []byte{0, 255, '\r', '\n', 0}, QoS: 1},
				{Topic: e.Root + "/ sp ace /ünï/\u65e5", Payload: []byte("x"), QoS: 1},
				{Topic: e.Root + "/v1.2/50%/*/>", Payload: []byte("x"), QoS: 1},
				{Topic: e.Root + "//", Payload: []byte("x"), QoS: 1},
				{Topic: e.Root + "/big", Payload: []byte(strings.Repeat("0123456789abcdef", 1<<16)), QoS: 1},
			} {
				e.Publish(m)
				d := in.Next(m.Topic)
				if diff := same(d.Message, m); diff != "" {
					e.Errorf("%s: %s", m.Topic, diff)
				}
				d.Settle()
			}
		}},
		{"MQTT-3.8.4-6 the lower QoS of publication and subscription", func(e *Env) {
			for sub := range byte(3) {
				in := e.SubscribeAs(fmt.Sprintf("%s-%d", e.Client, sub), e.Root+"/x", sub, false)
				want := func(pub byte) {
					d := in.Next(fmt.Sprintf("publication at QoS %d, subscription at %d", pub, sub))
					if d.QoS != min(pub, sub) || d.Message.QoS != pub {
						e.Errorf("publication at QoS %d, subscription at %d: delivered at %d (message says %d)", pub, sub, d.QoS, d.Message.QoS)
					}
					d.Settle()
				}
				e.Transient(e.Root+"/x", "zero")
				want(0)
				e.Publish(e.Msg(1, "one"))
				want(1)
				m := e.Msg(2, "two")
				e.Release(1, e.Hold(1, m), m)
				want(2)
				in.Close()
			}
		}},
		{"publications take effect in the order of the calls", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, false)
			var calls []*call
			for _, payload := range numbers(1, 300) {
				calls = append(calls, e.publishing(e.Msg(1, payload)))
			}
			for _, c := range calls {
				if _, _, err := e.wait(c); err != nil {
					e.Fatal(err)
				}
			}
			in.Want("in order", numbers(1, 300)...)
			in.Quiet("once each", e.Root+"/x")
		}},
		{"publications and releases take effect in the order of the calls", func(e *Env) {
			in := e.Subscribe(e.Root+"/x", 2, false)
			const n = 100
			msgs := make([]*store.Message, 2*n+1)
			refs := make([]store.Ref, 2*n+1)
			for i := 2; i <= 2*n; i += 2 {
				msgs[i] = e.Msg(2, fmt.Sprint(i))
				refs[i] = e.Hold(uint16(i), msgs[i])
			}
			var calls []*call
			for i := 1; i <= 2*n; i++ {
				if i%2 == 1 {
					calls = append(calls, e.publishing(e.Msg(1, fmt.Sprint(i))))
				} else {
					calls = append(calls, e.releasing(e.Client, uint16(i), refs[i], msgs[i]))
				}
			}
			for _, c := range calls {
				if _, _, err := e.wait(c); err != nil {
					e.Fatal(err)
				}
			}
			in.Want("in order", numbers(1, 2*n)...)
			in.Quiet("once each", e.Root+"/x")
		}},
		{"each subscription gets its own copy", func(e *Env) {
			a := e.SubscribeAs(e.Client+"-a", e.Root+"/#", 2, false)
			b := e.SubscribeAs(e.Client+"-b", e.Root+"/#", 1, false)
			c := e.SubscribeAs(e.Client+"-b", e.Root+"/+", 2, true)
			other := e.SubscribeAs(e.Client+"-c", e.Root+"/other", 2, false)
			e.Publish(e.Msg(1, "A"))
			for _, in := range []*Inbox{a, b, c} {
				in.Want("matches", "A")
			}
			e.Publish(e.Msg(1, "fence"))
			for _, in := range []*Inbox{a, b, c} {
				in.Want("once", "fence")
			}
			other.Quiet("does not match", e.Root+"/other")
			e.forget(e.Client+"-b", c)
		}},
		{"a topic that nobody wants is published and gone", func(e *Env) {
			e.Publish(e.Msg(1, "A"))
			in := e.Subscribe(e.Root+"/x", 2, true)
			in.Quiet("SUB-13 a stale message never surfaces", e.Root+"/x")
			e.forget(e.Client, in)
		}},
		{"MQTT-4.7 filters", filters},
		{"the longest topics do not harm the store", longTopics},
	}
}

// forget ends a durable subscription, so that it wants nothing any more.
func (e *Env) forget(client string, in *Inbox) {
	e.Helper()
	in.Close()
	_, filter, _ := strings.Cut(in.name, " at ")
	if err := e.S.Unsubscribe(e.context(), client, filter); err != nil {
		e.Errorf("unsubscribe %s: %v", in.name, err)
	}
}

func filters(e *Env) {
	r := e.Root
	for _, tc := range []struct {
		reason  string
		filter  string
		match   []string
		nomatch []string
	}{
		{"a name matches itself only", r + "/a", []string{r + "/a"}, []string{r, r + "/a/b", r + "/A", r + "/a/"}},
		{"'#' matches all that does not start with '$' [MQTT-4.7.2-1]", "#", []string{r, r + "/a", r + "/a/b", "/" + r}, []string{"$" + r, "$" + r + "/a"}},
		{"'#' includes the parent level", r + "/#", []string{r, r + "/", r + "/a", r + "/a/b"}, []string{r + "x", "$" + r}},
		{"'+' is one level, an empty one too", r + "/+", []string{r + "/a", r + "/"}, []string{r, r + "/a/b"}},
		{"'+' at the start matches no '$' [MQTT-4.7.2-1]", "+/" + r, []string{"a/" + r, "/" + r}, []string{"$SYS/" + r, r, "a/" + r + "/b"}},
		{"'+' in the middle", r + "/+/c", []string{r + "/a/c", r + "//c"}, []string{r + "/c", r + "/a/b/c", r + "/a/c/d"}},
		{"'+' and '#'", r + "/+/#", []string{r + "/a", r + "/a/b", r + "/"}, []string{r}},
		{"a filter that names '$'", "$" + r + "/#", []string{"$" + r, "$" + r + "/a"}, []string{r + "/a", r}},
		{"'+' below '$'", "$" + r + "/+", []string{"$" + r + "/a"}, []string{"$" + r, r + "/a"}},
		{"an empty level is a level", r + "//b", []string{r + "//b"}, []string{r + "/b", r + "/a/b"}},
		{"what means something to NATS is a character here", r + "/v1.2/*/>", []string{r + "/v1.2/*/>"}, []string{r + "/v1/2/*/>", r + "/v1.2/a/>", r + "/v1.2/*/b", r + "/v1.2/*"}},
		{"a space is a character", r + "/a b", []string{r + "/a b"}, []string{r + "/a", r + "/ab"}},
	} {
		in := e.SubscribeAs(e.Client, tc.filter, 2, false)
		for _, name := range tc.nomatch {
			e.Publish(&store.Message{Topic: name, Payload: []byte("must not match: " + name), QoS: 1})
			e.Transient(name, "must not match: "+name)
		}
		for _, name := range tc.match {
			e.Publish(&store.Message{Topic: name, Payload: []byte("stored"), QoS: 1})
			d := in.Next(tc.reason + ": " + name)
			if d.Message.Topic != name {
				e.Fatalf("%s: filter %q got %q, want %q", tc.reason, tc.filter, d.Message.Topic, name)
			}
			d.Settle()
			e.Transient(name, "transient")
			if d := in.Next(tc.reason + ": " + name); d.Message.Topic != name || string(d.Message.Payload) != "transient" {
				e.Fatalf("%s: filter %q got %q %q, want the transient %q", tc.reason, tc.filter, d.Message.Topic, d.Message.Payload, name)
			}
		}
		in.Close()
	}
}

// A client can send any topic of 65,535 bytes. The store may refuse it, as an error of that operation; it must not lose
// what other clients do at the same time, and what it takes it must deliver.
func longTopics(e *Env) {
	in := e.Subscribe(e.Root+"/x", 2, false)
	for _, filler := range []string{"a", ".", " ", "/"} {
		name := e.Root + "/" + strings.Repeat(filler, 65_535-len(e.Root)-1)
		m := &store.Message{Topic: name, Payload: []byte("QoS 2"), QoS: 2}
		got := make(chan store.Delivery, 10)
		feed, err := e.S.Subscribe(e.context(), e.Client+"-long", store.Subscription{Filter: name, QoS: 2}, false, func(d store.Delivery) { got <- d })
		if err == nil {
			defer feed.Close()
		}
		want := 0
		if _, _, err := e.wait(e.publishing(&store.Message{Topic: name, Payload: []byte("QoS 1"), QoS: 1})); err == nil {
			want++
		}
		if ref, _, err := e.wait(e.holding(e.Client, 1, m)); err == nil {
			e.Release(1, ref, m) // what was taken can be released
			want++
		}
		_ = e.S.Transient(&store.Message{Topic: name, Payload: []byte("x")})
		e.Publish(e.Msg(1, "after "+filler))
		in.Want(fmt.Sprintf("others go on after a topic of %q", filler), "after "+filler)
		for err == nil && want > 0 {
			select {
			case d := <-got:
				if d.Message.Topic != name {
					e.Errorf("topic of %d bytes, want %d", len(d.Message.Topic), len(name))
				}
				if d.Message.QoS > 0 {
					want--
				}
			case <-time.After(patience):
				e.Fatalf("a topic of %q was taken and is not delivered", filler)
			}
		}
	}
}
