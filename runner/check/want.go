package check

import (
	"fmt"
	"strings"

	"inflight/runner/history"
)

// Want is a packet to wait for.
type Want struct {
	Type history.Type
	ID   uint16 // 0: any
	Body string // of a PUBLISH, "": any
	Echo int    // instead of ID: that of the Echo-th PUBLISH above QoS 0 that the connection received, from 1
}

// String is the want for people.
func (w Want) String() string {
	s := w.Type.String()
	if w.ID != 0 {
		s += fmt.Sprintf("(%d)", w.ID)
	}
	if w.Echo != 0 {
		s += fmt.Sprintf("(that of delivery %d)", w.Echo)
	}
	if w.Body != "" {
		s += fmt.Sprintf(" %q", w.Body)
	}
	return s
}

// Ack is the want of an acknowledgement.
func Ack(t history.Type, id uint16) Want { return Want{Type: t, ID: id} }

// Echo is the want of a packet with the identifier of the kth delivery above QoS 0 of the connection.
func Echo(t history.Type, k int) Want { return Want{Type: t, Echo: k} }

// Acks are the wants of acknowledgements with the identifiers from first to last.
func Acks(t history.Type, first, last uint16) []Want {
	var all []Want
	for id := int(first); id <= int(last); id++ {
		all = append(all, Want{Type: t, ID: uint16(id)})
	}
	return all
}

// Del is the want of a delivery.
func Del(body string) Want { return Want{Type: history.PUBLISH, Body: body} }

// Dels are the wants of deliveries.
func Dels(bodies ...string) []Want {
	var all []Want
	for _, b := range bodies {
		all = append(all, Del(b))
	}
	return all
}

// mostShown is how many packets of a step are named for people.
const mostShown = 4

func textOf(msgs []Msg) string {
	var parts []string
	for i := range msgs {
		if i == mostShown-1 && len(msgs) > mostShown {
			parts = append(parts, fmt.Sprintf("... %s (%d packets)", msgs[len(msgs)-1].String(), len(msgs)))
			break
		}
		parts = append(parts, msgs[i].String())
	}
	return strings.Join(parts, " ")
}

func wantsText(wants []Want) string {
	var parts []string
	for i, w := range wants {
		if i == mostShown-1 && len(wants) > mostShown {
			parts = append(parts, fmt.Sprintf("... %v (%d packets)", wants[len(wants)-1], len(wants)))
			break
		}
		parts = append(parts, w.String())
	}
	return strings.Join(parts, " ")
}
