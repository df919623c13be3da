package history

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// The blocks and options of pcapng that are used, https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/.
const (
	sectionHeader   = 0x0A0D0D0A
	interfaceBlock  = 1
	enhancedPacket  = 6
	byteOrderMagic  = 0x1A2B3C4D
	linkRaw         = 101 // LINKTYPE_RAW: the packet begins with an IP header
	optComment      = 1
	optTimeRes      = 9
	nanoseconds     = 9 // 10^-9
	mqttPort        = 1883
	firstClientPort = 10_000
	segmentBytes    = 32 << 10
)

// WritePcapng writes the history as a capture of TCP over IPv4 that Wireshark opens and dissects as MQTT: each connection
// has a client port of its own and talks to 127.0.0.1, port 1883, whatever the address was; the segments are made up around
// the recorded bytes, with a handshake, sequence numbers and an end. Checksums are left 0, as those of offloading
// interfaces are.
func WritePcapng(w io.Writer, h *History) error {
	c := &capture{h: h, flows: make([]flow, len(h.Conns))}
	c.header()
	for _, v := range h.Events {
		if v.Conn >= 0 && v.Conn < len(h.Conns) {
			c.event(v)
		}
	}
	if _, err := w.Write(c.out.Bytes()); err != nil {
		return fmt.Errorf("write a capture: %w", err)
	}
	return nil
}

// flow holds the next sequence number of each side.
type flow struct{ client, server uint32 }

type capture struct {
	h     *History
	out   bytes.Buffer
	flows []flow
}

func (c *capture) header() {
	body := binary.LittleEndian.AppendUint32(nil, byteOrderMagic)
	body = binary.LittleEndian.AppendUint16(body, 1)
	body = binary.LittleEndian.AppendUint16(body, 0)
	body = binary.LittleEndian.AppendUint64(body, 1<<64-1) // length not given
	text := fmt.Sprintf("inflight check %s, MQTT level %d, round %d, seed %d", c.h.Check, c.h.Version, c.h.Round, c.h.Seed)
	c.block(sectionHeader, option(body, optComment, []byte(text)))

	body = binary.LittleEndian.AppendUint16(nil, linkRaw)
	body = binary.LittleEndian.AppendUint16(body, 0)
	body = binary.LittleEndian.AppendUint32(body, 0) // no limit
	c.block(interfaceBlock, option(body, optTimeRes, []byte{nanoseconds}))
}

// option appends an option and the end of options.
func option(b []byte, code uint16, value []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, code)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(value)))
	b = pad(append(b, value...))
	return append(b, 0, 0, 0, 0)
}

func pad(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func (c *capture) block(kind uint32, body []byte) {
	body = pad(body)
	n := uint32(12 + len(body))
	c.out.Write(binary.LittleEndian.AppendUint32(nil, kind))
	c.out.Write(binary.LittleEndian.AppendUint32(nil, n))
	c.out.Write(body)
	c.out.Write(binary.LittleEndian.AppendUint32(nil, n))
}

// TCP flags.
const (
	fin = 1 << iota
	syn
	rst
	psh
	ack
)

func (c *capture) event(v Event) {
	switch v.Kind {
	case Opened:
		c.segment(v, true, syn, nil)
		c.segment(v, false, syn|ack, nil)
		c.segment(v, true, ack, nil)
	case Sent, Received, Garbage:
		for rest := v.Raw; len(rest) > 0; {
			piece := rest[:min(len(rest), segmentBytes)]
			rest = rest[len(piece):]
			c.segment(v, v.Kind == Sent, psh|ack, piece)
		}
	case Closed:
		c.segment(v, false, fin|ack, nil)
	case Cut:
		c.segment(v, true, rst|ack, nil)
	}
}

func (c *capture) segment(v Event, fromClient bool, flags byte, data []byte) {
	f := &c.flows[v.Conn]
	client, server := uint16(firstClientPort+v.Conn%50_000), uint16(mqttPort)
	from, to, next, other := client, server, &f.client, f.server
	if !fromClient {
		from, to, next, other = server, client, &f.server, f.client
	}
	tcp := binary.BigEndian.AppendUint16(nil, from)
	tcp = binary.BigEndian.AppendUint16(tcp, to)
	tcp = binary.BigEndian.AppendUint32(tcp, *next)
	if flags&ack == 0 {
		other = 0
	}
	tcp = binary.BigEndian.AppendUint32(tcp, other)
	tcp = append(tcp, 5<<4, flags, 0xFF, 0xFF, 0, 0, 0, 0)
	tcp = append(tcp, data...)
	*next += uint32(len(data))
	if flags&(syn|fin) != 0 {
		*next++
	}
	ip := []byte{0x45, 0}
	ip = binary.BigEndian.AppendUint16(ip, uint16(20+len(tcp)))
	ip = append(ip, 0, 0, 0x40, 0, 64, 6, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1)
	packet := append(ip, tcp...)

	at := uint64(c.h.Started.Add(v.At).UnixNano())
	body := binary.LittleEndian.AppendUint32(nil, 0)
	body = binary.LittleEndian.AppendUint32(body, uint32(at>>32))
	body = binary.LittleEndian.AppendUint32(body, uint32(at))
	body = binary.LittleEndian.AppendUint32(body, uint32(len(packet)))
	body = binary.LittleEndian.AppendUint32(body, uint32(len(packet)))
	body = pad(append(body, packet...))
	if v.Text != "" && v.Kind != Opened {
		body = option(body, optComment, []byte(v.Text))
	}
	c.block(enhancedPacket, body)
}

// Span is how long the history lasted.
func (h *History) Span() time.Duration {
	if len(h.Events) == 0 {
		return 0
	}
	return h.Events[len(h.Events)-1].At
}
