package broker

import (
	"fmt"
	"io"
	"slices"
	"testing"

	"inflight/broker/packet"
)

func TestQoS2WindowInOneWrite(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		for _, n := range []int{1, 2, 20, 256} {
			topic := fmt.Sprintf("w/%d", n)
			w := connect(t, s, "watcher")
			w.subscribe(topic, 2)
			p := connect(t, s, "publisher")
			p.send(numbered(n, func(id uint16) []byte { return pub(id, 2, topic, fmt.Sprint(id)) }))
			p.want(sentences(n, "PUBREC #")...) // in the order of the PUBLISHes
			p.send(numbered(n, func(id uint16) []byte { return ack(packet.PUBREL, id) }))
			p.want(sentences(n, "PUBCOMP #")...)
			w.take(sentences(n, "PUBLISH q2 "+topic+` "#"`)...) // and so are the deliveries [MQTT-4.6.0-6]
		}
	})
}

func TestQoS2HeldUntilPubrel(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		w := connect(t, s, "watcher")
		w.subscribe("a", 2)
		p := connect(t, s, "publisher")
		p.send(pub(7, 2, "a", "A"))
		p.want("PUBREC 7")
		w.wantQuiet()
		p.send(ack(packet.PUBREL, 7))
		p.want("PUBCOMP 7")
		w.take(`PUBLISH q2 a "A"`)
	})
}

// Deliveries follow the PUBRELs [MQTT-4.6.0-5], whatever order those are in and whether or not they waited for their
// PUBRECs.
func TestQoS2PubrelOrder(t *testing.T) {
	t.Parallel()
	const n = 64
	eachStore(t, func(t *testing.T, s *Server) {
		for _, c := range []struct {
			name  string
			early bool
			order func(i int) int // position of the i-th PUBREL's message
		}{
			{"Q2I-16 each in one write with its PUBLISH, in order", true, func(i int) int { return i }},
			{"Q2I-16 early and last to first", true, func(i int) int { return n - 1 - i }},
			{"Q2I-16 early, in leaps", true, func(i int) int { return i * 37 % n }},
			{"Q2I-24 last to first", false, func(i int) int { return n - 1 - i }},
			{"Q2I-24 in leaps", false, func(i int) int { return i * 37 % n }},
		} {
			t.Run(c.name, func(t *testing.T) {
				w := connect(t, s, "watcher")
				w.subscribe("o", 2)
				p := connect(t, s, "publisher")
				publishes := numbered(n, func(id uint16) []byte { return pub(id, 2, "o", fmt.Sprint(id)) })
				var pubrels []byte
				var pubcomps, deliveries []string
				for i := range n {
					id := c.order(i) + 1
					pubrels = append(pubrels, ack(packet.PUBREL, uint16(id))...)
					pubcomps = append(pubcomps, fmt.Sprintf("PUBCOMP %d", id))
					deliveries = append(deliveries, fmt.Sprintf("PUBLISH q2 o %q", fmt.Sprint(id)))
				}
				if c.early {
					p.send(publishes, pubrels)
					got := make(map[string][]string) // each type in its own order
					for range 2 * n {
						f, err := p.next()
						if err != nil {
							t.Fatal(err)
						}
						got[f.Type().String()] = append(got[f.Type().String()], describe(f))
					}
					if !slices.Equal(got["PUBREC"], sentences(n, "PUBREC #")) || !slices.Equal(got["PUBCOMP"], pubcomps) {
						t.Fatalf("answers: %v", got)
					}
				} else {
					p.send(publishes)
					p.want(sentences(n, "PUBREC #")...)
					p.send(pubrels)
					p.want(pubcomps...)
				}
				w.take(deliveries...)
			})
		}
	})
}

func TestQoS2Duplicates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, why string
		write     []byte
		want      []string
	}{
		{
			"after each PUBREC", "4.3.3-2: any subsequent PUBLISH is answered",
			nil, nil,
		},
		{
			"in one write", "every copy has its PUBREC",
			join(pub(7, 2, "a", "A"), dup(7, 2, "a", "A"), dup(7, 2, "a", "A")),
			[]string{"PUBREC 7", "PUBREC 7", "PUBREC 7"},
		},
		{
			"without DUP", "the rule does not depend on the flag",
			join(pub(7, 2, "a", "A"), pub(7, 2, "a", "A"), pub(7, 2, "a", "A")),
			[]string{"PUBREC 7", "PUBREC 7", "PUBREC 7"},
		},
		{
			"other payloads", "first copy wins",
			join(pub(7, 2, "a", "A"), dup(7, 2, "a", "B"), pub(7, 2, "a", "C")),
			[]string{"PUBREC 7", "PUBREC 7", "PUBREC 7"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *Server) {
				w := connect(t, s, "watcher")
				w.subscribe("a", 2)
				p := connect(t, s, "publisher")
				if c.write == nil {
					for _, b := range [][]byte{pub(7, 2, "a", "A"), dup(7, 2, "a", "A"), dup(7, 2, "a", "A")} {
						p.send(b)
						p.want("PUBREC 7")
					}
				} else {
					p.send(c.write)
					p.want(c.want...)
				}
				p.send(join(ack(packet.PUBREL, 7), ack(packet.PUBREL, 7), ack(packet.PUBREL, 7)))
				p.want("PUBCOMP 7", "PUBCOMP 7", "PUBCOMP 7")
				w.take(`PUBLISH q2 a "A"`)
				w.wantQuiet()
			})
		})
	}
}

func TestQoS2UnknownPubrel(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		p := connect(t, s, "publisher")
		p.send(ack(packet.PUBREL, 4242))
		p.want("PUBCOMP 4242")
		p.send(packet.AppendEmpty(nil, packet.PINGREQ))
		p.want("PINGRESP")
	})
}

func TestQoS2PublishAndPubrelInOneWrite(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		w := connect(t, s, "watcher")
		w.subscribe("a", 2)
		p := connect(t, s, "publisher")
		p.send(pub(3, 2, "a", "A"), ack(packet.PUBREL, 3))
		p.want("PUBREC 3", "PUBCOMP 3")
		w.take(`PUBLISH q2 a "A"`)
		w.wantQuiet()
	})
}

func TestQoS2IdentifierReusedAtOnce(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		w := connect(t, s, "watcher")
		w.subscribe("a", 2)
		p := connect(t, s, "publisher")
		for i := range 200 {
			p.send(pub(1, 2, "a", fmt.Sprint(i+1)))
			p.want("PUBREC 1")
			p.send(ack(packet.PUBREL, 1))
			p.want("PUBCOMP 1")
		}
		w.take(sentences(200, `PUBLISH q2 a "#"`)...)
		w.wantQuiet()
	})
}

func TestQoS2Resume(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *Server, w *peer)
	}{
		{"the duplicate of a held message", func(t *testing.T, s *Server, w *peer) {
			p := connect(t, s, "p", "keep")
			p.send(pub(3, 2, "a", "A"))
			p.want("PUBREC 3")
			p.cut()
			p = connect(t, s, "p", "keep", "present")
			p.send(dup(3, 2, "a", "A"))
			p.want("PUBREC 3")
			p.send(ack(packet.PUBREL, 3))
			p.want("PUBCOMP 3")
			w.take(`PUBLISH q2 a "A"`)
		}},
		{"PUBREL of a held message", func(t *testing.T, s *Server, w *peer) {
			p := connect(t, s, "p", "keep")
			p.send(pub(3, 2, "a", "A"))
			p.want("PUBREC 3")
			p.cut()
			p = connect(t, s, "p", "keep", "present")
			p.send(ack(packet.PUBREL, 3))
			p.want("PUBCOMP 3")
			w.take(`PUBLISH q2 a "A"`)
		}},
		{"PUBREL again after its PUBCOMP was lost", func(t *testing.T, s *Server, w *peer) {
			p := connect(t, s, "p", "keep")
			p.send(pub(3, 2, "a", "A"))
			p.want("PUBREC 3")
			p.send(ack(packet.PUBREL, 3))
			p.cut()
			p = connect(t, s, "p", "keep", "present")
			p.send(ack(packet.PUBREL, 3))
			p.want("PUBCOMP 3")
			w.take(`PUBLISH q2 a "A"`)
		}},
		{"a duplicate that the broker never saw", func(t *testing.T, s *Server, w *peer) {
			connect(t, s, "p", "keep").cut()
			p := connect(t, s, "p", "keep", "present")
			p.send(dup(5, 2, "a", "A"))
			p.want("PUBREC 5")
			p.send(ack(packet.PUBREL, 5))
			p.want("PUBCOMP 5")
			w.take(`PUBLISH q2 a "A"`)
		}},
		{"a new message on an identifier whose exchange was completed", func(t *testing.T, s *Server, w *peer) {
			p := connect(t, s, "p", "keep")
			p.send(pub(3, 2, "a", "OLD"))
			p.want("PUBREC 3")
			p.send(ack(packet.PUBREL, 3))
			p.want("PUBCOMP 3")
			p.cut() // at once: the discard of the old copy is still to come
			p = connect(t, s, "p", "keep", "present")
			p.send(dup(3, 2, "a", "NEW"))
			p.want("PUBREC 3")
			p.send(ack(packet.PUBREL, 3))
			p.want("PUBCOMP 3")
			w.take(`PUBLISH q2 a "OLD"`, `PUBLISH q2 a "NEW"`)
		}},
		{"a clean start drops what was held", func(t *testing.T, s *Server, w *peer) {
			p := connect(t, s, "p", "keep")
			p.send(pub(1, 2, "a", "OLD"))
			p.want("PUBREC 1")
			p.cut()
			p = connect(t, s, "p")
			p.send(ack(packet.PUBREL, 1))
			p.want("PUBCOMP 1")
			p.send(pub(1, 2, "a", "NEW"))
			p.want("PUBREC 1")
			p.cut()
			p = connect(t, s, "p", "keep") // the clean session is gone
			p.send(ack(packet.PUBREL, 1))
			p.want("PUBCOMP 1")
		}},
		{"a clean session's message and the next one's on the same identifier", func(t *testing.T, s *Server, w *peer) {
			p := connect(t, s, "p")
			p.send(pub(1, 2, "a", "OLD"))
			p.want("PUBREC 1")
			p.cut()
			p = connect(t, s, "p")
			p.send(pub(1, 2, "a", "NEW"))
			p.want("PUBREC 1")
			p.send(ack(packet.PUBREL, 1))
			p.want("PUBCOMP 1")
			w.take(`PUBLISH q2 a "NEW"`)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *Server) {
				w := connect(t, s, "watcher")
				w.subscribe("a", 2)
				c.run(t, s, w)
				w.wantQuiet()
			})
		})
	}
}

// TestQoS2OtherNode moves a publisher from node to node inside an exchange.
func TestQoS2OtherNode(t *testing.T) { t.Parallel(); eachDurable(t, testQoS2OtherNode) }

func testQoS2OtherNode(t *testing.T, on string) {
	if testing.Short() {
		t.Skip("starts a cluster of three; run without -short")
	}
	nodes := cluster(t, with(on))
	for _, qos := range []byte{0, 1, 2} {
		w := connect(t, nodes[2], fmt.Sprintf("watcher%d", qos))
		topic := fmt.Sprintf("t%d", qos)
		w.subscribe(topic, qos)
		p := connect(t, nodes[0], "p"+topic, "keep")
		p.send(pub(3, 2, topic, "A"), pub(4, 2, topic, "B"))
		p.want("PUBREC 3", "PUBREC 4")
		p.send(ack(packet.PUBREL, 3))
		p.want("PUBCOMP 3")
		p.send(ack(packet.PUBREL, 4))
		p.cut()
		q := connect(t, nodes[1], "p"+topic, "keep", "present")
		q.send(ack(packet.PUBREL, 4)) // delivered already, or not: once in the end
		q.want("PUBCOMP 4")
		q.send(dup(3, 2, topic, "C")) // 3 was completed: a new message
		q.want("PUBREC 3")
		q.send(ack(packet.PUBREL, 3))
		q.want("PUBCOMP 3")
		var want []string
		for _, payload := range []string{"A", "B", "C"} {
			want = append(want, fmt.Sprintf("PUBLISH q%d %s %q", qos, topic, payload))
		}
		if qos == 2 {
			w.take(want...)
		} else {
			w.want(want...)
		}
		w.wantQuiet()
	}
}

func join(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// An exchange costs the broker its message and the body, which outlive it, and nothing else: operations are used again.
func TestQoS2Allocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates; run without -race, as .ci/run does as well")
	}
	s := open(t, StoreMemory)
	p := connect(t, s, "p")
	const window = 256
	publishes := numbered(window, func(id uint16) []byte { return pub(id, 2, "a/b", string(make([]byte, 256))) })
	pubrels := numbered(window, func(id uint16) []byte { return ack(packet.PUBREL, id) })
	answers := make([]byte, window*4)
	exchange := func() {
		for _, b := range [][]byte{publishes, pubrels} {
			if _, err := p.nc.Write(b); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(p.nc, answers); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 20 {
		exchange()
	}
	if n := testing.AllocsPerRun(50, exchange) / window; n > 2.5 {
		t.Errorf("%.2f allocations for each exchange, want the message, its body, and what is left of a map", n)
	}
}
