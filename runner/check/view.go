package check

import (
	"strings"

	"inflight/runner/history"
)

// Item is one packet of a history, or the end of a connection.
type Item struct {
	Event int // index into the history's events
	Conn  int
	Kind  history.Kind
	P     history.Packet
	Err   error // P is not legal
	Raw   []byte
}

// view is a history that was decoded once, with the script's names in place of those on the wire.
type view struct {
	h     *history.History
	items []Item
}

// Fact keys that whoever runs a script leaves in its history.
const (
	FactPrefix = "prefix" // of every topic
	FactGroup  = "group"  // of every share name
)

func newView(h *history.History) *view {
	v := &view{h: h, items: make([]Item, 0, sizeOf(h))}
	for i, e := range h.Events {
		if e.Conn < 0 || e.Conn >= len(h.Conns) {
			continue
		}
		level := h.Conns[e.Conn].Version
		switch e.Kind {
		case history.Sent:
			packets, rest := history.Split(e.Raw)
			for _, raw := range packets {
				v.add(i, e, level, raw)
			}
			if len(rest) > 0 {
				p := history.Packet{Type: history.Type(rest[0] >> 4), Flags: rest[0] & 15}
				v.items = append(v.items, Item{Event: i, Conn: e.Conn, Kind: e.Kind, P: p, Err: errPartial, Raw: rest})
			}
		case history.Received:
			v.add(i, e, level, e.Raw)
		default:
			v.items = append(v.items, Item{Event: i, Conn: e.Conn, Kind: e.Kind, Raw: e.Raw})
		}
	}
	return v
}

// sizeOf is how many items a history has: an item is large, and a slice that grows copies them all.
func sizeOf(h *history.History) int {
	n := len(h.Events)
	for _, e := range h.Events {
		if e.Kind != history.Sent {
			continue
		}
		for b := e.Raw; ; n++ {
			size, err := history.FrameLength(b)
			if err != nil || size == 0 || size >= len(b) {
				break
			}
			b = b[size:]
		}
	}
	return n
}

type viewError string

func (e viewError) Error() string { return string(e) }

const errPartial = viewError("not a whole packet")

func (v *view) add(i int, e history.Event, level byte, raw []byte) {
	p, err := history.Decode(level, e.Kind == history.Received, raw)
	prefix := v.h.Facts[FactPrefix]
	p.Topic = strings.TrimPrefix(p.Topic, prefix)
	v.items = append(v.items, Item{Event: i, Conn: e.Conn, Kind: e.Kind, P: p, Err: err, Raw: raw})
}

func (v *view) name(i Item) string { return v.h.Conns[i.Conn].Name }

// body is the payload without what fills it up.
func body(p *history.Packet) string { return BodyOf(p) }

// BodyOf is the payload of a PUBLISH without what fills it up.
func BodyOf(p *history.Packet) string {
	s := string(p.Payload)
	if i := strings.IndexByte(s, '.'); i >= 0 && strings.Trim(s[i+1:], "x") == "" {
		s = s[:i]
	}
	return s
}

// isFence reports whether a message is only there to mark a place.
func isFence(p *history.Packet) bool { return strings.HasPrefix(string(p.Payload), fenceMark) }

// Delivery is a message as a subscriber's application sees it: at QoS 2 a PUBLISH that repeats an exchange which is not
// finished is not another one [MQTT-4.3.3-2] ; [MQTT-4.3.3-10].
type Delivery struct {
	Item
	Body string
}

// deliveries are those of a client over all its connections, without fences.
func (v *view) deliveries(name string) []Delivery {
	var all []Delivery
	open := map[uint16]bool{} // identifiers between PUBLISH and PUBREL
	for _, i := range v.items {
		if v.name(i) != name || i.Kind != history.Received || i.Err != nil {
			continue
		}
		switch i.P.Type {
		case history.CONNACK:
			if !i.P.Present {
				clear(open)
			}
		case history.PUBREL:
			delete(open, i.P.ID)
		case history.PUBLISH:
			if i.P.QoS == 2 {
				if open[i.P.ID] {
					continue
				}
				open[i.P.ID] = true
			}
			if !isFence(&i.P) {
				all = append(all, Delivery{Item: i, Body: body(&i.P)})
			}
		}
	}
	return all
}

// packets are those of a client over all its connections in one direction, of the given types; none: all.
func (v *view) packets(name string, kind history.Kind, types ...history.Type) []Item {
	var all []Item
	for _, i := range v.items {
		if i.Kind != kind || v.name(i) != name {
			continue
		}
		for _, t := range types {
			if i.P.Type == t {
				all = append(all, i)
			}
		}
		if len(types) == 0 {
			all = append(all, i)
		}
	}
	return all
}

// nth keeps the items of the client's nth connection, from 1.
func (v *view) nth(items []Item, n int) []Item {
	var some []Item
	for _, i := range items {
		if v.h.Conns[i.Conn].Nth == n {
			some = append(some, i)
		}
	}
	return some
}
