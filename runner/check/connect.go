package check

import (
	"fmt"
	"strings"

	"inflight/broker/packet"
	"inflight/runner/history"
)

// ConnectOption changes a CONNECT.
type ConnectOption func(*Connect)

// Connect is what a CONNECT says.
type Connect struct {
	Kept      bool // Clean Session 0; in 5.0 with a Session Expiry Interval of five minutes
	Fresh     bool // Kept, but with Clean Start 1 in 5.0
	Client    *string
	KeepAlive uint16
	Will      *Will
	Level     byte // 0: the version's
	Props     *packet.Properties
	Mode      Mode
	Node      int  // of a cluster, from 0; where there are fewer, counted round
	Expected  bool // a refusal is a violation, not trouble
}

// Will is a Will Message.
type Will struct {
	Topic, Body string
	QoS         byte
	Retain      bool
	Delay       uint32
}

// sessionExpiry is that of kept sessions: long enough for every script, short enough for what a killed run leaves behind.
const sessionExpiry = 300

// Kept asks for a session that outlives the connection.
func Kept(c *Connect) { c.Kept = true }

// KeepAlive sets Keep Alive in seconds.
func KeepAlive(seconds uint16) ConnectOption { return func(c *Connect) { c.KeepAlive = seconds } }

// WithWill sets the Will.
func WithWill(w Will) ConnectOption { return func(c *Connect) { c.Will = &w } }

// ClientID sets the Client Identifier as it is.
func ClientID(id string) ConnectOption { return func(c *Connect) { c.Client = &id } }

// Receive announces a Receive Maximum; in 3.1.1 it says nothing.
func Receive(n uint16) ConnectOption {
	return props(func(p *packet.Properties) { p.ReceiveMaximum = packet.Some(n) })
}

// MaxPacket announces a Maximum Packet Size.
func MaxPacket(n uint32) ConnectOption {
	return props(func(p *packet.Properties) { p.MaximumPacketSize = packet.Some(n) })
}

// Expiry sets the Session Expiry Interval, in seconds.
func Expiry(n uint32) ConnectOption {
	return props(func(p *packet.Properties) { p.SessionExpiry = packet.Some(n) })
}

func props(set func(*packet.Properties)) ConnectOption {
	return func(c *Connect) {
		if c.Props == nil {
			c.Props = &packet.Properties{}
		}
		set(c.Props)
	}
}

// Hold says what the connection does not answer by itself.
func Hold(types ...history.Type) ConnectOption {
	return func(c *Connect) { c.Mode = hold(c.Mode, types...) }
}

func hold(m Mode, types ...history.Type) Mode {
	for _, t := range types {
		switch t {
		case history.PUBACK:
			m.HoldAck = true
		case history.PUBREC:
			m.HoldRec = true
		case history.PUBCOMP:
			m.HoldComp = true
		}
	}
	return m
}

// Releasing answers each PUBREC with a PUBREL.
func Releasing(c *Connect) { c.Mode.Release = true }

// At connects to a node of a cluster, from 0.
func At(node int) ConnectOption { return func(c *Connect) { c.Node = node } }

// PerByte writes one byte at a time.
func PerByte(c *Connect) { c.Mode.PerByte = true }

func (o *Connect) text() string {
	var parts []string
	switch {
	case o.Kept && o.Fresh:
		parts = append(parts, "new kept session")
	case o.Kept:
		parts = append(parts, "kept session")
	default:
		parts = append(parts, "clean session")
	}
	if o.KeepAlive > 0 {
		parts = append(parts, fmt.Sprintf("keep alive %d s", o.KeepAlive))
	}
	if o.Node > 0 {
		parts = append(parts, fmt.Sprintf("at node %d", o.Node+1))
	}
	if o.Will != nil {
		parts = append(parts, fmt.Sprintf("will %q QoS %d", o.Will.Body, o.Will.QoS))
	}
	if p := o.Props; p != nil {
		if p.ReceiveMaximum.Set {
			parts = append(parts, fmt.Sprintf("Receive Maximum %d", p.ReceiveMaximum.Value))
		}
		if p.MaximumPacketSize.Set {
			parts = append(parts, fmt.Sprintf("Maximum Packet Size %d", p.MaximumPacketSize.Value))
		}
		if p.SessionExpiry.Set {
			parts = append(parts, fmt.Sprintf("Session Expiry %d s", p.SessionExpiry.Value))
		}
	}
	for _, m := range []struct {
		on   bool
		text string
	}{
		{o.Mode.HoldAck, "withholds PUBACK"},
		{o.Mode.HoldRec, "withholds PUBREC"},
		{o.Mode.HoldComp, "withholds PUBCOMP"},
		{o.Mode.Release, "releases at PUBREC"},
		{o.Mode.PerByte, "writes byte by byte"},
	} {
		if m.on {
			parts = append(parts, m.text)
		}
	}
	return strings.Join(parts, ", ")
}
