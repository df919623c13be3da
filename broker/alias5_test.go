package broker

import (
	"fmt"
	"testing"

	"inflight/broker/packet"
)

// A client that takes Topic Aliases gets them up to its maximum, on each connection anew [MQTT-3.1.2-26] [MQTT-3.3.2-7].
func TestAliasesOut(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		connect := func(maximum uint16, present bool) *peer5 {
			return connect5(t, s, &packet.Connect{ClientID: "w", Properties: &props{
				SessionExpiry: packet.Some[uint32](100), TopicAliasMaximum: packet.Some(maximum),
			}}, present)
		}
		w := connect(1, false)
		// takes wants one PUBLISH, as topic=alias, and returns its Packet Identifier.
		takes := func(want string) uint16 {
			t.Helper()
			f, err := w.next()
			if err != nil {
				t.Fatal(err)
			}
			m, err := w.codec.ParsePublish(f)
			if err != nil {
				t.Fatal(err)
			}
			got := string(m.Topic)
			if m.Properties != nil && m.Properties.TopicAlias.Set {
				got += fmt.Sprintf("=%d", m.Properties.TopicAlias.Value)
			}
			if got += fmt.Sprintf(" %s", m.Payload); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
			return m.ID
		}
		w.subscribe(0, packet.Subscription{Filter: "topic/#", QoS: 1})
		p := clean5(t, s, "p")
		publish := func(n int, qos byte, topic string) {
			t.Helper()
			p.send(pub5(uint16(n)*uint16(qos), qos, topic, fmt.Sprint(n), nil))
			if qos > 0 {
				p.want(fmt.Sprintf("PUBACK %d", n))
			}
		}
		publish(1, 0, "topic/a")
		takes("topic/a=1 1")
		publish(2, 0, "topic/a")
		takes("=1 2")
		publish(3, 1, "topic/a")
		w.send(ack5(packet.PUBACK, takes("=1 3"), 0))
		publish(4, 1, "topic/b")
		first := takes("topic/b 4")
		publish(5, 1, "topic/a")
		second := takes("=1 5")
		w.cut()
		away(t, s, "w")
		w = connect(9, true)
		if again := takes("topic/b=1 4"); again != first {
			t.Errorf("4 comes again as %d, it was %d", again, first)
		}
		if again := takes("topic/a=2 5"); again != second {
			t.Errorf("5 comes again as %d, it was %d", again, second)
		}
		publish(6, 1, "topic/a")
		third := takes("=2 6")
		w.send(ack5(packet.PUBACK, first, 0), ack5(packet.PUBACK, second, 0), ack5(packet.PUBACK, third, 0))
		w.cut()
		away(t, s, "w")
		w = connect(0, true) // none, and nothing is left
		publish(7, 0, "topic/a")
		takes("topic/a 7")
	})
}
