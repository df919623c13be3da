package broker

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"inflight/broker/packet"
)

// segmentation is a way in which the same bytes can reach the broker. Nothing depends on it, over TCP as over WebSocket
// [MQTT-6.0.0-2].
type segmentation struct {
	name  string
	ws    bool
	write func(l *line, b []byte) error
}

// line is a network connection of a peer.
type line struct {
	nc net.Conn
	ws *websocket.Conn // below nc, if it is one
}

// pieces writes n bytes at a time; over WebSocket each piece is a message.
func pieces(n int) func(*line, []byte) error {
	return func(l *line, b []byte) error {
		for len(b) > 0 {
			k := min(n, len(b))
			if _, err := l.nc.Write(b[:k]); err != nil {
				return err
			}
			b = b[k:]
		}
		return nil
	}
}

// fragments writes one WebSocket message in frames of n bytes.
func fragments(n int) func(*line, []byte) error {
	return func(l *line, b []byte) error {
		w, err := l.ws.Writer(context.Background(), websocket.MessageBinary)
		if err != nil {
			return err
		}
		for len(b) > 0 {
			k := min(n, len(b))
			if _, err := w.Write(b[:k]); err != nil {
				return err
			}
			b = b[k:]
		}
		return w.Close()
	}
}

var segmentations = []segmentation{
	{"TCP, one write", false, pieces(1 << 30)},
	{"TCP, a byte at a time", false, pieces(1)},
	{"TCP, pieces that end inside packets", false, pieces(13)},
	{"TCP, larger than the first buffer", false, pieces(40_000)},
	{"WebSocket, one frame", true, pieces(1 << 30)},
	{"WebSocket, frames of a byte", true, pieces(1)},
	{"WebSocket, frames that end inside packets", true, pieces(13)},
	{"WebSocket, one message in frames of a byte", true, fragments(1)},
	{"WebSocket, one message in frames that end inside packets", true, fragments(1000)},
}

// segmented starts a broker with both kinds of listeners.
func segmented(t *testing.T) *Server {
	t.Helper()
	return open(t, StoreMemory, func(c *Config) { c.Listeners = []string{"ws://127.0.0.1:0"} })
}

// dial opens a connection whose peer writes in the segmentation's way.
func (g segmentation) dial(t *testing.T, s *Server, v packet.Version) *peer5 {
	t.Helper()
	l := &line{}
	if g.ws {
		var err error
		l.ws, _, err = websocket.Dial(t.Context(), s.ln.URLs()[1], &websocket.DialOptions{Subprotocols: []string{"mqtt"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.ws.CloseNow() })
		l.nc = websocket.NetConn(context.Background(), l.ws, websocket.MessageBinary)
	} else {
		l.nc = dial(t, s).nc // Go sets TCP_NODELAY
	}
	p := &peer5{
		peer:  &peer{t: t, nc: segmentedConn{l.nc, l, g.write}, rd: packet.NewReader(l.nc, 4096, 0)},
		codec: packet.Codec{Version: v, From: packet.FromServer},
	}
	p.rd.SetVersion(v)
	return p
}

// segmentedConn writes in pieces.
type segmentedConn struct {
	net.Conn
	line  *line
	write func(*line, []byte) error
}

func (c segmentedConn) Write(b []byte) (int, error) {
	if err := c.write(c.line, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// payloads are what a publisher sends: for each QoS those of one topic, in order.
type payloads [3][]string

// publishes are the PUBLISH packets, the QoS in turn; identifiers count from 1 over all.
func (all payloads) publishes(v packet.Version) (b []byte, acks, recs []string, rels []byte, comps []string) {
	id := uint16(0)
	for i := range max(len(all[0]), len(all[1]), len(all[2])) {
		for qos := range byte(3) {
			if i >= len(all[qos]) {
				continue
			}
			p := packet.Publish{Topic: fmt.Appendf(nil, "q/%d", qos), Payload: []byte(all[qos][i]), QoS: qos}
			if qos > 0 {
				id++
				p.ID = id
			}
			if v == packet.V5 {
				p.Properties = &props{ContentType: []byte("text"), User: []packet.UserProperty{{Key: []byte("k"), Value: fmt.Append(nil, i)}}}
			}
			b = append(b, v.AppendPublish(nil, &p)...)
			switch qos {
			case 1:
				acks = append(acks, fmt.Sprint("PUBACK ", id))
			case 2:
				recs = append(recs, fmt.Sprint("PUBREC ", id))
				rels = append(rels, v.AppendAck(nil, packet.PUBREL, packet.Ack{ID: id})...)
				comps = append(comps, fmt.Sprint("PUBCOMP ", id))
			}
		}
	}
	return b, acks, recs, rels, comps
}

// wantTypes wants packets of several types, each type in its order; between types there is none.
func (p *peer5) wantTypes(sequences ...[]string) {
	p.t.Helper()
	total := 0
	for _, s := range sequences {
		total += len(s)
	}
next:
	for range total {
		f, err := p.next()
		if err != nil {
			p.t.Fatalf("%v, want %d sequences, of which is missing %.200q", err, len(sequences), sequences)
		}
		got := p.describe(f)
		for i, s := range sequences {
			if len(s) > 0 && s[0] == got {
				sequences[i] = s[1:]
				continue next
			}
		}
		p.t.Fatalf("got %s, want the first of one of %.200q", got, sequences)
	}
}

// gather receives n messages and completes them; it gives the payloads in their order.
func (p *peer5) gather(n int) (got []string) {
	p.t.Helper()
	for open := 0; len(got) < n || open > 0; {
		f, err := p.next()
		if err != nil {
			p.t.Fatalf("%v after %d of %d messages", err, len(got), n)
		}
		v := p.codec.Version
		switch f.Type() {
		case packet.PUBLISH:
			m, err := p.codec.ParsePublish(f)
			if err != nil {
				p.t.Fatal(err)
			}
			if v == packet.V5 && m.Properties != nil {
				// What the publisher gave the message, by its place.
				if q := m.Properties; string(q.ContentType) != "text" || string(q.User[0].Value) != fmt.Sprint(len(got)) {
					p.t.Fatalf("message %d has %+v", len(got), q)
				}
			}
			got = append(got, string(m.Payload))
			if m.QoS > 0 {
				answer := packet.PUBACK
				if m.QoS == 2 {
					answer = packet.PUBREC
					open++
				}
				p.send(v.AppendAck(nil, answer, packet.Ack{ID: m.ID}))
			}
		case packet.PUBREL:
			a, err := p.codec.ParseAck(f)
			if err != nil {
				p.t.Fatal(err)
			}
			open--
			p.send(v.AppendAck(nil, packet.PUBCOMP, packet.Ack{ID: a.ID}))
		default:
			p.t.Fatalf("got %s among messages", p.describe(f))
		}
	}
	return got
}

// same compares payloads without printing them whole.
func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%s: %d messages, want %d; the first difference is message %d", what, len(got), len(want), i)
		}
	}
}

// plain is the segmentation of the peers that only watch.
var plain = segmentations[0]

func (g segmentation) enter(t *testing.T, s *Server, v packet.Version, id string, more ...[]byte) *peer5 {
	t.Helper()
	p := g.dial(t, s, v)
	p.send(append([][]byte{v.AppendConnect(nil, &packet.Connect{ClientID: id, CleanSession: true})}, more...)...)
	p.want("CONNACK present=false 0x00")
	return p
}

// watchers subscribe to the topic of each QoS.
func watchers(t *testing.T, s *Server, v packet.Version) (w [3]*peer5) {
	t.Helper()
	for qos := range w {
		w[qos] = plain.enter(t, s, v, fmt.Sprint("w", qos))
		w[qos].send(v.AppendSubscribe(nil, &packet.Subscribe{
			ID: 9, Subscriptions: []packet.Subscription{{Filter: fmt.Sprint("q/", qos), QoS: 2}},
		}))
		w[qos].want("SUBACK 9 0x02")
	}
	return w
}

// segmentsMeanTheSame sends all at once behind the CONNECT and wants every answer and every message in order.
func segmentsMeanTheSame(t *testing.T, g segmentation, v packet.Version, all payloads) {
	t.Helper()
	s := segmented(t)
	w := watchers(t, s, v)
	publishes, acks, recs, rels, comps := all.publishes(v)
	p := g.enter(t, s, v, "p", publishes)
	p.wantTypes(acks, recs)
	p.send(rels)
	p.wantTypes(comps)
	for qos, peer := range w {
		same(t, fmt.Sprint("QoS ", qos), peer.gather(len(all[qos])), all[qos])
	}
	p.send(packet.AppendEmpty(nil, packet.PINGREQ))
	p.want("PINGRESP")
}

func eachVersion(t *testing.T, run func(t *testing.T, v packet.Version)) {
	t.Helper()
	for _, v := range []packet.Version{packet.V311, packet.V5} {
		t.Run(fmt.Sprint(v), func(t *testing.T) { run(t, v) })
	}
}

// E2E-08: the same answers and messages, however the bytes arrive.
func TestSegments(t *testing.T) {
	t.Parallel()
	var all payloads
	for qos := range all {
		for i := range 8 {
			all[qos] = append(all[qos], strings.Repeat(fmt.Sprint(qos, i, " "), i*i))
		}
		all[qos] = append(all[qos], strings.Repeat("0123456789abcdef", 1<<8)) // 4 KiB
	}
	for _, g := range segmentations {
		t.Run(g.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, v packet.Version) { segmentsMeanTheSame(t, g, v, all) })
		})
	}
}

// Payloads larger than any buffer, among small ones.
func TestSegmentsOfLargePackets(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789abcdef", 1<<12) // 64 KiB
	for _, g := range segmentations {
		all := payloads{{"a", large, "b"}, {"c", large, "d"}, {"e", large, "f"}}
		if g.name == "TCP, one write" || g.name == "WebSocket, one frame" {
			for range 20 {
				all[1], all[2] = append(all[1], large, ""), append(all[2], large, "")
			}
		}
		t.Run(g.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, v packet.Version) { segmentsMeanTheSame(t, g, v, all) })
		})
	}
}

// Thousands of packets in one write of a mebibyte.
func TestCoalescedPackets(t *testing.T) {
	t.Parallel()
	var all payloads
	const n = 4000 // of each QoS above 0: both together are within the Receive Maximum
	for i := range n {
		for qos := 1; qos <= 2; qos++ {
			all[qos] = append(all[qos], fmt.Sprintf("%0130d", i))
		}
	}
	for i := range 500 { // what waits for a subscriber at QoS 0 is limited
		all[0] = append(all[0], fmt.Sprint(i))
	}
	for _, g := range segmentations {
		if !strings.Contains(g.name, "one write") && !strings.Contains(g.name, "one frame") {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, v packet.Version) {
				if b, _, _, _, _ := all.publishes(v); len(b) < 1<<20 {
					t.Fatalf("%d bytes are less than a mebibyte", len(b))
				}
				segmentsMeanTheSame(t, g, v, all)
			})
		})
	}
}

// BAD-15: a packet of which a part is missing at the end of the connection was never sent, wherever it is cut.
func TestPartialPackets(t *testing.T) {
	t.Parallel()
	endings := []struct {
		name string
		ws   bool
		end  func(p *peer5)
	}{
		{"FIN", false, func(p *peer5) { _ = p.nc.Close() }},
		{"half a close", false, func(p *peer5) {
			_ = p.nc.(segmentedConn).Conn.(*net.TCPConn).CloseWrite()
			p.wantClosed()
		}},
		{"RST", false, func(p *peer5) { (&peer{nc: p.nc.(segmentedConn).Conn}).cut() }},
		{"WebSocket close", true, func(p *peer5) { _ = p.nc.(segmentedConn).line.ws.Close(websocket.StatusNormalClosure, "") }},
		{"WebSocket without a close", true, func(p *peer5) { _ = p.nc.(segmentedConn).line.ws.CloseNow() }},
	}
	for _, e := range endings {
		g := segmentation{ws: e.ws, write: pieces(1 << 30)}
		t.Run(e.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, v packet.Version) {
				s := segmented(t)
				w := watchers(t, s, v)
				for qos := range byte(3) {
					m := packet.Publish{Topic: fmt.Appendf(nil, "q/%d", qos), Payload: []byte("partial"), QoS: qos}
					if qos > 0 {
						m.ID = 2
					}
					if v == packet.V5 {
						m.Properties = &props{ContentType: []byte("none")}
					}
					partial := v.AppendPublish(nil, &m)
					for cut := range len(partial) {
						whole := fmt.Sprint("before ", cut)
						before := pubWhole(v, qos, whole)
						if qos == 2 { // one exchange is over, another one is not to begin
							before = append(before, v.AppendAck(nil, packet.PUBREL, packet.Ack{ID: 1})...)
						}
						p := g.enter(t, s, v, fmt.Sprint("p", qos, cut), before, partial[:cut]) // none takes another's session over
						switch qos {
						case 1:
							p.want("PUBACK 1")
						case 2:
							p.want("PUBREC 1", "PUBCOMP 1")
						}
						same(t, "the packet before", w[qos].gather(1), []string{whole})
						e.end(p)
					}
					same(t, "nothing but the sentinel", afterwards(t, s, v, qos, w[qos]), []string{"after"})
				}
			})
		})
	}
}

// pubWhole is a PUBLISH with identifier 1.
func pubWhole(v packet.Version, qos byte, payload string) []byte {
	m := packet.Publish{Topic: fmt.Appendf(nil, "q/%d", qos), Payload: []byte(payload), QoS: qos}
	if qos > 0 {
		m.ID = 1
	}
	if v == packet.V5 {
		m.Properties = &props{ContentType: []byte("text"), User: []packet.UserProperty{{Key: []byte("k"), Value: []byte("0")}}}
	}
	return v.AppendPublish(nil, &m)
}

// afterwards publishes a sentinel from a connection of its own and gives the one message that arrives.
func afterwards(t *testing.T, s *Server, v packet.Version, qos byte, w *peer5) []string {
	t.Helper()
	o := plain.enter(t, s, v, "o")
	b := pubWhole(v, qos, "after")
	if qos == 2 {
		b = append(b, v.AppendAck(nil, packet.PUBREL, packet.Ack{ID: 1})...)
	}
	o.send(b)
	return w.gather(1)
}

// A PUBREL that is cut releases nothing, and the exchange goes on in the resumed session.
func TestPartialPubrel(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, v packet.Version) {
		s := segmented(t)
		w := watchers(t, s, v)[2]
		connect := packet.Connect{ClientID: "p"}
		if v == packet.V5 {
			connect.Properties = &props{SessionExpiry: packet.Some[uint32](600)}
		}
		rel := bytes.Clone(v.AppendAck(nil, packet.PUBREL, packet.Ack{ID: 1}))
		for cut := range len(rel) {
			p := plain.dial(t, s, v)
			p.send(v.AppendConnect(nil, &connect), pubWhole(v, 2, fmt.Sprint(cut)))
			p.want(fmt.Sprintf("CONNACK present=%v 0x00", cut > 0), "PUBREC 1")
			p.send(rel[:cut])
			_ = p.nc.Close()
			away(t, s, "p")
			w.wantQuiet()
			p = plain.dial(t, s, v)
			p.send(v.AppendConnect(nil, &connect), rel)
			p.want("CONNACK present=true 0x00", "PUBCOMP 1")
			same(t, "after the release", w.gather(1), []string{fmt.Sprint(cut)})
			_ = p.nc.Close()
			away(t, s, "p")
		}
	})
}
