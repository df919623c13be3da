package broker

import (
	"fmt"
	"strings"
	"time"

	"inflight/broker/packet"
	"inflight/broker/store"
	"inflight/broker/topic"
)

// sysRoot starts the topics on which a node tells about itself. A filter that starts with a wildcard does not match them
// [MQTT-4.7.2-1].
const sysRoot = "$SYS/"

// sysLoop publishes the $SYS topics until stop is closed.
func (s *Server) sysLoop(stop <-chan struct{}) {
	tick := time.NewTicker(s.cfg.SysInterval)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			s.publishSys()
		}
	}
}

// publishSys hands one round of $SYS messages, at QoS 0, to the sessions of this node that are connected. They do not go
// through the store: each node tells about itself, and in a cluster the store would show every subscriber the values of
// all nodes in turn.
func (s *Server) publishSys() {
	type taker struct {
		cl  *client
		sub *subscription
	}
	var takers []taker
	subscriptions := 0
	s.eachClient(func(cl *client) {
		subscriptions += len(cl.subs)
		for _, sub := range cl.subs {
			if cl.conn != nil && strings.HasPrefix(sub.filter, sysRoot) {
				takers = append(takers, taker{cl, sub})
			}
		}
	})
	if len(takers) == 0 {
		return
	}
	round := s.sysMessages(subscriptions)
	for _, t := range takers {
		for _, m := range round {
			if topic.Match(t.sub.filter, m.Topic) {
				t.cl.deliver(t.sub, 0, store.Delivery{Message: m, Settle: func() {}})
			}
		}
	}
}

// sysMessages are the topics that other brokers have as well, with their meaning: "messages" are control packets of any
// type, "publish/messages" the PUBLISH packets among them.
func (s *Server) sysMessages(subscriptions int) []*store.Message {
	s.mu.Lock()
	connected := len(s.conns)
	s.mu.Unlock()
	var round []*store.Message
	add := func(name string, value any) {
		round = append(round, &store.Message{Topic: sysRoot + "broker/" + name, Payload: fmt.Append(nil, value)})
	}
	total := func(t *trafficTotal) (n int64) {
		for i := range t.packets {
			n += t.packets[i].Load()
		}
		return n
	}
	m := &s.metrics
	add("version", "inflight "+s.cfg.Version)
	add("uptime", int64(time.Since(m.epoch)/time.Second))
	add("clients/connected", connected)
	add("subscriptions/count", subscriptions)
	add("messages/received", total(&m.in))
	add("messages/sent", total(&m.out))
	add("publish/messages/received", m.in.packets[packet.PUBLISH].Load())
	add("publish/messages/sent", m.out.packets[packet.PUBLISH].Load())
	add("bytes/received", m.in.bytes.Load())
	add("bytes/sent", m.out.bytes.Load())
	return round
}
