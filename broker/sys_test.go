package broker

import (
	"strconv"
	"testing"
	"time"

	"inflight/broker/packet"
)

func sysOften(c *Config) { c.SysInterval = 10 * time.Millisecond }

// subscribeAmidst subscribes where messages may come before the SUBACK, which is legal, section 3.8.4.
func (p *peer) subscribeAmidst(filter string, qos byte) {
	p.t.Helper()
	p.send(packet.AppendSubscribe(nil, &packet.Subscribe{ID: 1, Subscriptions: []packet.Subscription{{Filter: filter, QoS: qos}}}))
	for {
		f, err := p.next()
		if err != nil {
			p.t.Fatal(err)
		}
		if f.Type() == packet.SUBACK {
			return
		}
	}
}

func TestSysTopics(t *testing.T) {
	t.Parallel()
	fast := func(c *Config) { sysOften(c); c.Version = "v9" }
	for _, name := range []string{StoreMemory, StoreStaged, StoreJournal} {
		t.Run(name, func(t *testing.T) {
			s := open(t, name, fast)
			all, one := connect(t, s, "all"), connect(t, s, "one")
			all.subscribe("#", 2)
			one.subscribe("+/broker/version", 2)
			w := connect(t, s, "w")
			w.subscribeAmidst("$SYS/broker/#", 2)
			got := map[string]string{}
			for range 20 { // two rounds
				f, err := w.next()
				if err != nil {
					t.Fatal(err)
				}
				p, err := packet.ParsePublish(f)
				if err != nil {
					t.Fatalf("%s: %v", describe(f), err)
				}
				if p.QoS != 0 || p.Retain {
					t.Errorf("%s at QoS %d, retain %v", p.Topic, p.QoS, p.Retain)
				}
				got[string(p.Topic)] = string(p.Payload)
			}
			for topic, want := range map[string]string{
				"$SYS/broker/version":             "inflight v9",
				"$SYS/broker/clients/connected":   "3",
				"$SYS/broker/subscriptions/count": "3",
				"$SYS/broker/messages/received":   "6", // three CONNECTs, three SUBSCRIBEs
			} {
				if got[topic] != want {
					t.Errorf("%s is %q, want %q", topic, got[topic], want)
				}
			}
			if n, err := strconv.Atoi(got["$SYS/broker/uptime"]); err != nil || n > 60 {
				t.Errorf("uptime: %q", got["$SYS/broker/uptime"])
			}
			// Three CONNACKs, three SUBACKs, and the round before.
			if n, err := strconv.Atoi(got["$SYS/broker/messages/sent"]); err != nil || n < 16 {
				t.Errorf("messages sent: %q", got["$SYS/broker/messages/sent"])
			}
			all.wantQuiet()
			one.wantQuiet()
		})
	}
	t.Run("none unless asked for", func(t *testing.T) {
		s := open(t, StoreMemory)
		w := connect(t, s, "w")
		w.subscribe("$SYS/#", 0)
		w.wantQuiet()
	})
}
