package broker

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"inflight/broker/packet"
)

// group is the Topic Filter of the shared subscription of most tests.
const group = "$share/g/a/#"

// completes publishes a QoS 2 message and completes it.
func (p *peer) completes(id uint16, topic, payload string) {
	p.t.Helper()
	p.send(pub(id, 2, topic, payload), ack(packet.PUBREL, id))
	p.want(fmt.Sprintf("PUBREC %d", id), fmt.Sprintf("PUBCOMP %d", id))
}

// One of the members gets each message, in turn, at the QoS and with the options of its own subscription [MQTT-4.8.2-3].
func TestSharedDistribution(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		members := []*peer5{clean5(t, s, "m0"), clean5(t, s, "m1")}
		members[0].subscribe(7, packet.Subscription{Filter: group, QoS: 1, RetainAsPublished: true})
		members[1].subscribe(9, packet.Subscription{Filter: group, QoS: 2})
		old := connect(t, s, "m2")
		old.subscribe(group, 0)
		plain := clean5(t, s, "plain")
		plain.subscribe(0, packet.Subscription{Filter: "a/#"})
		p := clean5(t, s, "p")
		for i := range 6 { // the fourth is the first one's again
			p.send(packet.V5.AppendPublish(nil, &packet.Publish{Topic: []byte("a/b"), Payload: []byte{'0' + byte(i)}, ID: uint16(i + 1), QoS: 1, Retain: true}))
			p.want(fmt.Sprintf("PUBACK %d", i+1))
		}
		plain.want(`PUBLISH q0 a/b "0"`, `PUBLISH q0 a/b "1"`, `PUBLISH q0 a/b "2"`, `PUBLISH q0 a/b "3"`, `PUBLISH q0 a/b "4"`, `PUBLISH q0 a/b "5"`)
		members[0].want(`PUBLISH q1 a/b "0" retain subscription=7`, `PUBLISH q1 a/b "3" retain subscription=7`)
		members[1].want(`PUBLISH q1 a/b "1" subscription=9`, `PUBLISH q1 a/b "4" subscription=9`)
		old.want(`PUBLISH q0 a/b "2"`, `PUBLISH q0 a/b "5"`)
		for i := range 6 {
			p.send(pub5(0, 0, "a/b", fmt.Sprint(i), nil))
		}
		plain.want(`PUBLISH q0 a/b "0"`, `PUBLISH q0 a/b "1"`, `PUBLISH q0 a/b "2"`, `PUBLISH q0 a/b "3"`, `PUBLISH q0 a/b "4"`, `PUBLISH q0 a/b "5"`)
		members[0].want(`PUBLISH q0 a/b "0" subscription=7`, `PUBLISH q0 a/b "3" subscription=7`)
		members[1].want(`PUBLISH q0 a/b "1" subscription=9`, `PUBLISH q0 a/b "4" subscription=9`)
		old.want(`PUBLISH q0 a/b "2"`, `PUBLISH q0 a/b "5"`)
		// No retained messages for a shared subscription, section 4.8.2; UNSUBSCRIBE ends the part of one member only.
		members[1].send(ack5(packet.PUBACK, 1, 0), ack5(packet.PUBACK, 2, 0))
		members[0].send(ack5(packet.PUBACK, 1, 0), ack5(packet.PUBACK, 2, 0))
		fresh := clean5(t, s, "fresh")
		fresh.subscribe(0, packet.Subscription{Filter: group, QoS: 2}, packet.Subscription{Filter: "$share/h/#", QoS: 2})
		fresh.wantQuiet()
		for _, m := range members {
			m.send(packet.V5.AppendUnsubscribe(nil, &packet.Unsubscribe{ID: 3, Filters: []string{group, group}}))
			m.want("UNSUBACK 3 0x00 0x11")
		}
		old.send(packet.AppendUnsubscribe(nil, &packet.Unsubscribe{ID: 3, Filters: []string{group}}))
		old.want("UNSUBACK 3")
		p.send(pub5(9, 1, "a", "x", nil))
		p.want("PUBACK 9")
		fresh.want(`PUBLISH q1 a "x"`, `PUBLISH q1 a "x"`)
		for _, m := range members {
			m.wantQuiet()
		}
		old.wantQuiet()
	})
}

func TestSharedRefused(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		m := clean5(t, s, "m")
		m.send(packet.V5.AppendSubscribe(nil, &packet.Subscribe{ID: 3, Subscriptions: []packet.Subscription{
			{Filter: "$share//a"}, {Filter: "$share/g+/a"}, {Filter: "$share/g"}, {Filter: "$share/g/"}, {Filter: "$share/g/a#"}, {Filter: group, QoS: 1},
		}}))
		m.want("SUBACK 3 0x8f 0x8f 0x8f 0x8f 0x8f 0x01")
		m.send(packet.V5.AppendSubscribe(nil, &packet.Subscribe{ID: 3, Subscriptions: []packet.Subscription{{Filter: group, NoLocal: true}}}))
		m.wantEnd(packet.ProtocolError) // [MQTT-3.8.3-4]
		old := connect(t, s, "old")
		old.send(packet.AppendSubscribe(nil, &packet.Subscribe{ID: 1, Subscriptions: []packet.Subscription{{Filter: "$share/g"}}}))
		old.wantClosed()
	})
}

// The permission is that of the filter inside.
func TestSharedRights(t *testing.T) {
	t.Parallel()
	eachStoreWith(t, files(t, "user alice allow both a/#\n", "alice"), func(t *testing.T, s *Server) {
		m := as(t, s, "alice", "m")
		m.want("CONNACK present=false code=0")
		m.send(packet.AppendSubscribe(nil, &packet.Subscribe{ID: 1, Subscriptions: []packet.Subscription{
			{Filter: group, QoS: 1}, {Filter: "$share/a/b", QoS: 1}, {Filter: "$share/a/#", QoS: 1},
		}}))
		m.want("SUBACK 1 [1 128 128]")
	})
}

// SUB-08: a member that is cut after PUBLISH, or after PUBREC, gets the rest of the exchange when it comes back, wherever
// that is [MQTT-4.8.2-4], and nobody else gets the message.
func TestSharedResume(t *testing.T) {
	t.Parallel()
	places(t, func(t *testing.T, first *Server, move func() *Server) {
		id := fmt.Sprint(time.Now().UnixNano())
		a, b := connect(t, first, "a"+id, "keep"), connect(t, first, "b"+id, "keep")
		a.subscribe(group, 2)
		b.subscribe(group, 2)
		p := connect(t, first, "p"+id)
		for i := range 6 {
			p.completes(uint16(i+1), "a", fmt.Sprint(i))
		}
		a.want(`PUBLISH q2 a "0"`, `PUBLISH q2 a "2"`, `PUBLISH q2 a "4"`)
		b.want(`PUBLISH q2 a "1"`, `PUBLISH q2 a "3"`, `PUBLISH q2 a "5"`)
		a.send(ack(packet.PUBREC, 2))
		a.want("PUBREL 2")
		b.send(ack(packet.PUBREC, 1), ack(packet.PUBREC, 2), ack(packet.PUBREC, 3))
		b.want("PUBREL 1", "PUBREL 2", "PUBREL 3")
		settleDown(a)
		settleDown(b)
		a.cut()
		away(t, first, "a"+id)
		p.completes(7, "a", "6")
		p.completes(8, "a", "7")
		b.take(`PUBLISH q2 a "6"`, `PUBLISH q2 a "7"`) // there is nobody else
		b.send(ack(packet.PUBCOMP, 1), ack(packet.PUBCOMP, 2), ack(packet.PUBCOMP, 3))
		settleDown(b)
		b.cut()
		away(t, first, "b"+id)
		p.completes(9, "a", "8") // nobody is there
		second := move()
		a = connect(t, second, "a"+id, "keep", "present")
		a.want("PUBREL 2", `PUBLISH q2 a "0" dup`, `PUBLISH q2 a "4" dup`, `PUBLISH q2 a "8"`)
		b = connect(t, second, "b"+id, "keep", "present")
		a.send(ack(packet.PUBCOMP, 2), ack(packet.PUBREC, 1), ack(packet.PUBREC, 3), ack(packet.PUBREC, 4))
		a.want("PUBREL 1", "PUBREL 3", "PUBREL 4")
		a.send(ack(packet.PUBCOMP, 1), ack(packet.PUBCOMP, 3), ack(packet.PUBCOMP, 4))
		a.wantQuiet()
		b.wantQuiet()
		p = connect(t, second, "p"+id)
		p.completes(1, "a", "9")
		p.completes(2, "a", "10")
		for _, m := range []*peer{a, b} {
			if got := m.takes(1)[0].text; got != `PUBLISH q2 a "9"` && got != `PUBLISH q2 a "10"` {
				t.Errorf("then %s", got)
			}
			m.send(packet.AppendUnsubscribe(nil, &packet.Unsubscribe{ID: 3, Filters: []string{group}}))
			m.want("UNSUBACK 3")
		}
	})
}

// SUB-08, SUB-09: what a member refuses is discarded [MQTT-4.8.2-6]; what is in flight to one whose session ends is not given
// to another at QoS 2 [MQTT-4.8.2-5], and is at QoS 1.
func TestSharedSessionEnds(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		for name, keep := range map[string]bool{"a clean session": false, "a kept session": true} {
			t.Run(name, func(t *testing.T) {
				a := connect5(t, s, &packet.Connect{ClientID: "a", CleanSession: true, Properties: &props{
					SessionExpiry: packet.Some(map[bool]uint32{true: 100}[keep]), ReceiveMaximum: packet.Some[uint16](3),
				}}, false)
				b := clean5(t, s, "b")
				a.subscribe(0, packet.Subscription{Filter: group, QoS: 2})
				b.subscribe(0, packet.Subscription{Filter: group, QoS: 2})
				p := connect(t, s, "p")
				// Every other one is for a: the last two are not sent to it.
				for i, qos := range []byte{2, 1, 2, 1, 1, 1, 2, 1, 1, 1} {
					if qos == 2 {
						p.completes(uint16(i+1), "a", fmt.Sprint(i))
					} else {
						p.send(pub(uint16(i+1), 1, "a", fmt.Sprint(i)))
						p.want(fmt.Sprintf("PUBACK %d", i+1))
					}
				}
				a.want(`PUBLISH q2 a "0"`, `PUBLISH q2 a "2"`, `PUBLISH q1 a "4"`)
				b.want(sentencesOf(`PUBLISH q1 a "%d"`, 1, 3, 5, 7, 9)...)
				a.send(ack5(packet.PUBREC, 1, packet.QuotaExceeded))
				a.want(`PUBLISH q2 a "6"`)
				a.wantQuiet()
				a.send(packet.V5.AppendDisconnect(nil, &packet.Disconnect{Properties: &props{SessionExpiry: packet.Some[uint32](0)}}))
				a.wantClosed()
				got := map[string]bool{}
				for range 2 {
					f, err := b.next()
					if err != nil {
						t.Fatal(err)
					}
					got[b.describe(f)] = true
				}
				if !got[`PUBLISH q1 a "4"`] || !got[`PUBLISH q1 a "8"`] {
					t.Errorf("got %v; want 4, in flight at QoS 1, and 8, not sent", got)
				}
				b.wantQuiet()
				b.leave(packet.Disconnect{})
				p.leave()
			})
		}
	})
}

func (p *peer) leave() {
	p.t.Helper()
	p.send(packet.AppendEmpty(nil, packet.DISCONNECT))
	p.wantClosed()
}

func sentencesOf(format string, numbers ...int) (all []string) {
	for _, n := range numbers {
		all = append(all, fmt.Sprintf(format, n))
	}
	return all
}

// What is in flight of a shared subscription that is given up is completed there [MQTT-3.10.4-3] and given to nobody else.
func TestSharedUnsubscribeInFlight(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		a, b := connect(t, s, "a", "keep"), connect(t, s, "b")
		a.subscribe(group, 2)
		b.subscribe(group, 2)
		p := connect(t, s, "p")
		p.send(pub(1, 1, "a", "1"), pub(2, 1, "a", "2"))
		p.want("PUBACK 1", "PUBACK 2")
		a.want(`PUBLISH q1 a "1"`)
		b.want(`PUBLISH q1 a "2"`)
		a.send(packet.AppendUnsubscribe(nil, &packet.Unsubscribe{ID: 9, Filters: []string{group}}))
		a.want("UNSUBACK 9")
		b.wantQuiet()
		a.cut()
		connect(t, s, "a", "keep", "present").want(`PUBLISH q1 a "1" dup`)
	})
}

// SUB-10: members and publishers are cut again and again and move from node to node: every message comes to one member,
// once.
func TestSharedExactlyOnce(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	run := func(t *testing.T, nodes []*Server, total, most int) {
		const size = 4
		var wg sync.WaitGroup
		var members [size]*receiver
		for i := range members {
			m := connect(t, nodes[i%len(nodes)], fmt.Sprintf("m%d", i), "keep")
			m.subscribe("$share/g/k/+", 2)
			m.cut()
			members[i] = &receiver{t: t, pending: map[uint16]string{}}
		}
		var mu sync.Mutex
		seen := 0
		over := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return seen >= total || t.Failed()
		}
		for i, r := range members {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			wg.Go(func() {
				for !over() || len(r.pending) > 0 && !t.Failed() {
					p := login(t, nodes[rng.IntN(len(nodes))], fmt.Sprintf("m%d", i), true, true)
					had := len(r.got)
					r.connection(p, 1<<30, time.Now().Add(time.Duration(1+rng.IntN(most))*time.Millisecond))
					mu.Lock()
					seen += len(r.got) - had
					mu.Unlock()
				}
			})
		}
		const publishers = 2
		for i := range publishers {
			u := newUnreliable(t, fmt.Sprintf("p%d", i), fmt.Sprintf("k/%d", i), 16, rand.New(rand.NewPCG(seed, uint64(100+i))))
			u.text, u.longest, u.more = fmt.Sprintf("%d-", i), 60*time.Millisecond, func(next int) bool { return next < total/publishers }
			u.connect = func(first bool) *peer { return login(t, nodes[u.rng.IntN(len(nodes))], u.id, true, !first) }
			wg.Go(func() { t.Logf("publisher %d: %d connections", i, u.run()) })
		}
		wg.Wait()
		onceEach(t, nodes[0], members[:], publishers, total)
	}
	t.Run("memory", func(t *testing.T) { run(t, []*Server{open(t, StoreMemory)}, 10_000, 60) })
	eachDurable(t, func(t *testing.T, on string) {
		t.Run("alone", func(t *testing.T) { t.Parallel(); run(t, []*Server{open(t, on)}, sharedTotal(t), 200) })
		t.Run("cluster", func(t *testing.T) {
			if testing.Short() {
				t.Skip("starts a cluster of three; run without -short")
			}
			t.Parallel()
			run(t, cluster(t, with(on)), 1000, 1000)
		})
	})
}

// The node that hands out to half of the members goes away with what it was doing: nothing is lost, nothing comes twice.
func TestSharedNodeStops(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a cluster of three; run without -short")
	}
	eachDurable(t, func(t *testing.T, on string) {
		nodeStops(t, cluster(t, with(on)))
	})
}

func nodeStops(t *testing.T, nodes []*Server) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const total = 450
	var members []*receiver
	var peers []*peer
	var mu sync.Mutex
	seen := 0
	for i := range 4 {
		p := connect(t, nodes[max(0, i-1)], fmt.Sprintf("m%d", i), "keep")
		p.subscribe("$share/g/k/+", 2)
		peers = append(peers, p)
		members = append(members, &receiver{t: t, pending: map[uint16]string{}})
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i, r := range members {
		wg.Go(func() {
			for p, at := peers[i], max(0, i-1); !t.Failed(); {
				had := len(r.got)
				r.connection(p, 1<<30, time.Now().Add(300*time.Millisecond))
				mu.Lock()
				seen += len(r.got) - had
				over := seen >= total
				if seen > total/3 && stop != nil {
					close(stop)
					stop = nil
				}
				mu.Unlock()
				if over && len(r.pending) == 0 {
					return
				}
				if at == 0 {
					select {
					case <-nodes[0].stop:
						at = 1
					default:
					}
				}
				if p = resumeAt(t, nodes[at], fmt.Sprintf("m%d", i)); p == nil {
					p = login(t, nodes[1], fmt.Sprintf("m%d", i), true, true) // the node has just gone
				}
			}
		})
	}
	u := newUnreliable(t, "p0", "k/0", 16, rand.New(rand.NewPCG(seed, 1)))
	u.text, u.longest, u.more = "0-", 200*time.Millisecond, func(next int) bool { return next < total }
	u.connect = func(first bool) *peer { return login(t, nodes[1+u.rng.IntN(2)], u.id, true, !first) }
	wg.Go(func() { u.run() })
	third := stop
	wg.Go(func() {
		<-third
		crash(nodes[0])
	})
	wg.Wait()
	onceEach(t, nodes[1], members, 1, total)
}

// resumeAt connects to a node that may be gone; nil when it is.
func resumeAt(t *testing.T, s *Server, id string) *peer {
	nc, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		return nil
	}
	p := &peer{t: t, nc: nc, rd: packet.NewReader(nc, 4096, 0)}
	if _, err := nc.Write(packet.AppendConnect(nil, &packet.Connect{ClientID: id})); err != nil {
		return nil
	}
	f, err := p.next()
	if err != nil || describe(f) != "CONNACK present=true code=0" {
		_ = nc.Close()
		return nil
	}
	t.Cleanup(func() { _ = nc.Close() })
	return p
}

// onceEach wants nothing more for the members, and every message at one of them, once.
func onceEach(t *testing.T, node *Server, members []*receiver, publishers, total int) {
	t.Helper()
	if t.Failed() {
		return
	}
	for i, r := range members {
		r.connection(login(t, node, fmt.Sprintf("m%d", i), true, true), 1<<30, time.Now().Add(2*quiet))
	}
	count := map[string]int{}
	for i, r := range members {
		t.Logf("member %d: %d messages, %d came again", i, len(r.got), r.again)
		for _, payload := range r.got {
			count[payload]++
		}
	}
	var wrong []string
	for i := range publishers {
		for n := range total / publishers {
			if payload := fmt.Sprintf("%d-%08d", i, n); count[payload] != 1 {
				wrong = append(wrong, fmt.Sprintf("%s %d times", payload, count[payload]))
			}
		}
	}
	if len(wrong) > 0 || len(count) != total {
		t.Errorf("%d of %d messages, %d not once: %s", len(count), total, len(wrong), strings.Join(wrong[:min(len(wrong), 20)], ", "))
	}
}

// sharedTotal is how many messages a group gets where each takes its time.
func sharedTotal(t *testing.T) int {
	if testing.Short() {
		return 400
	}
	return 4_000
}
