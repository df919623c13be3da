package check

import (
	"fmt"
	"time"

	"inflight/broker/packet"
	"inflight/runner/history"
)

// Times of the detection: how long something optional is waited for.
const (
	detectWait   = 2 * time.Second
	optionalWait = 500 * time.Millisecond // without anything coming
	holdWait     = 400 * time.Millisecond // between PUBREC and PUBREL, to see whether the broker delivers before it
)

// detectBurst is how many messages show whether acknowledgements come in order.
const detectBurst = 20

// Detection and controls use identifiers from 30,000 on, and bodies that begin with "=": a broker with a planted fault leaves
// them alone, as it does fences.

// Detection is the script that shows what a broker can do. Nothing in it is an obligation but the CONNACK.
func Detection(s *Script) {
	s.Connect("p")
	s.Connect("w")
	s.Send("w", Msg{Type: packet.SUBSCRIBE, ID: 1, Subs: []packet.Subscription{{Filter: "t", QoS: 2}}})
	s.Maybe("w", detectWait, Want{Type: history.SUBACK, ID: 1})
	s.Send("p", P1(30_001, "=one"))
	s.Maybe("p", detectWait, Ack(history.PUBACK, 30_001))
	s.Maybe("w", detectWait, Del("=one"))
	s.Send("p", P2(30_002, "=two"))
	s.Maybe("p", detectWait, Ack(history.PUBREC, 30_002))
	s.Maybe("w", holdWait, Del("=two"))
	s.Send("p", Rel(30_002))
	s.Maybe("p", detectWait, Ack(history.PUBCOMP, 30_002))
	s.Maybe("w", detectWait, Del("=two"))
	s.Send("p", Publishes(1, 30_100, detectBurst)...)
	s.Maybe("p", detectWait, Acks(history.PUBACK, 30_100, 30_100+detectBurst-1)...)
	s.Send("p", Publishes(2, 30_200, detectBurst)...)
	s.Maybe("p", detectWait, Acks(history.PUBREC, 30_200, 30_200+detectBurst-1)...)
	s.Send("p", Rels(30_200, 30_200+detectBurst-1)...)
	s.Maybe("p", detectWait, Acks(history.PUBCOMP, 30_200, 30_200+detectBurst-1)...)

	// Each may be refused with the end of the connection, so each has one of its own.
	s.Connect("r")
	s.Retained = append(s.Retained, "r")
	s.Send("r", P(0, 0, "=kept").On("r").Retained())
	s.Send("r", Msg{Type: packet.PINGREQ})
	s.Maybe("r", detectWait, Want{Type: history.PINGRESP})
	s.Connect("q")
	s.Send("q", Msg{Type: packet.SUBSCRIBE, ID: 1, Subs: []packet.Subscription{{Filter: "r", QoS: 0}}})
	for i, filter := range []string{"x/#", "$share/g/s"} {
		conn := fmt.Sprintf("f%d", i)
		s.Connect(conn)
		s.Send(conn, Msg{Type: packet.SUBSCRIBE, ID: 1, Subs: []packet.Subscription{{Filter: filter, QoS: 0}}})
		s.Maybe(conn, detectWait, Want{Type: history.SUBACK, ID: 1})
	}
	s.Connect("v")
	s.Send("v", P(0, 0, "=share").On("s"), P(0, 0, "=wild").On("x/y"))
	// Some of it may never come: all is waited for at once.
	s.Quiet(optionalWait)
}

// Detected reads the capabilities from the history of Detection.
func Detected(h *history.History) Caps {
	j := &J{view: newView(h), V: h.Version}
	c := Caps{Receive: 65_535, Retain: true, Wildcards: true, SubIDs: j.Is5(), InOrder: true, MaxQoS: 2}
	for _, i := range j.Got("p", history.CONNACK) {
		p := &i.P
		c.MaxQoS = byte(p.Number(history.PropMaximumQoS, 2))
		c.Receive = int(p.Number(history.PropReceiveMaximum, 65_535))
		c.MaxPacket = int(p.Number(history.PropMaximumPacket, 0))
		c.Aliases = int(p.Number(34, 0))
		c.SubIDs = j.Is5() && p.Number(history.PropSubIDAvailable, 1) == 1
		break
	}
	has := func(conn string, t history.Type, id uint16) bool {
		for _, i := range j.Got(conn, t) {
			if i.P.ID == id {
				return true
			}
		}
		return false
	}
	switch {
	case !has("p", history.PUBACK, 30_001):
		c.MaxQoS = 0
	case !has("p", history.PUBREC, 30_002):
		c.MaxQoS = min(c.MaxQoS, 1)
	}
	for _, i := range j.Got("w", history.SUBACK) {
		if i.P.ID == 1 && len(i.P.Codes) == 1 && i.P.Codes[0] < c.MaxQoS {
			c.MaxQoS = i.P.Codes[0]
		}
	}
	delivered := func(conn, body string) (at Item, ok bool) {
		for _, d := range j.deliveries(conn) {
			if d.Body == body {
				return d.Item, true
			}
		}
		return Item{}, false
	}
	_, c.Delivers = delivered("w", "=one")
	if at, ok := delivered("w", "=two"); ok {
		c.Method = "B"
		for _, i := range j.Put("p", history.PUBREL) {
			if i.P.ID == 30_002 && i.Event < at.Event {
				c.Method = "A"
			}
		}
	}
	_, c.Retain = delivered("q", "=kept")
	_, c.Wildcards = delivered("f0", "=wild")
	_, c.Shared = delivered("f1", "=share")
	probe := &J{view: j.view, V: h.Version, Rule: &Rule{Level: Info}, Caps: c}
	InOrder(Ordered, "p", history.PUBLISH, history.PUBACK, 1)(probe)
	InOrder(Ordered, "p", history.PUBLISH, history.PUBREC, 2)(probe)
	InOrder(Ordered, "p", history.PUBREL, history.PUBCOMP, 2)(probe)
	c.InOrder = len(probe.findings) == 0
	return c
}

// Shown are the capabilities for people and for the result.
func (c *Caps) Shown() map[string]string {
	all := map[string]string{}
	c.KeepIn(all)
	shown := map[string]string{}
	for k, v := range all {
		shown[k[len("cap."):]] = v
	}
	return shown
}
