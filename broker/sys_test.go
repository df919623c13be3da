package broker

import (
	"fmt"
	"math"
	"strconv"
	"strings"
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

// sysWrong says which of the values are not those of three clients that have each connected and subscribed.
func sysWrong(got map[string]string) (wrong []string) {
	for topic, want := range map[string]string{
		"$SYS/broker/version":             "inflight v9",
		"$SYS/broker/clients/connected":   "3",
		"$SYS/broker/subscriptions/count": "3",
		"$SYS/broker/messages/received":   "6", // three CONNECTs, three SUBSCRIBEs
	} {
		if got[topic] != want {
			wrong = append(wrong, fmt.Sprintf("%s is %q, want %q", topic, got[topic], want))
		}
	}
	for topic, within := range map[string][2]int64{
		"$SYS/broker/uptime":                    {0, int64(patience / time.Second)},
		"$SYS/broker/messages/sent":             {16, math.MaxInt64}, // three CONNACKs, three SUBACKs, and a round of ten
		"$SYS/broker/publish/messages/sent":     {10, math.MaxInt64},
		"$SYS/broker/publish/messages/received": {0, 0},
		"$SYS/broker/bytes/received":            {6 * 2, math.MaxInt64},
		"$SYS/broker/bytes/sent":                {16 * 2, math.MaxInt64},
	} {
		if n, err := strconv.ParseInt(got[topic], 10, 64); err != nil || n < within[0] || n > within[1] {
			wrong = append(wrong, fmt.Sprintf("%s is %q, want %d to %d", topic, got[topic], within[0], within[1]))
		}
	}
	return wrong
}

func TestSysTopics(t *testing.T) {
	t.Parallel()
	fast := func(c *Config) { sysOften(c); c.Version = "v9" }
	for _, name := range []string{StoreMemory, StoreStaged, StoreJournal} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, name, fast)
			all, one := connect(t, s, "all"), connect(t, s, "one")
			all.subscribe("#", 2)
			one.subscribe("+/broker/version", 2)
			w := connect(t, s, "w")
			w.subscribeAmidst("$SYS/broker/#", 2)
			// A count may be folded in a moment after its packet was answered, and a round be made before the one before it has
			// been written: the values are what they come to, not what the first rounds say.
			got := map[string]string{}
			for began := time.Now(); ; {
				wrong := sysWrong(got)
				if len(wrong) == 0 {
					break
				}
				if time.Since(began) > patience {
					t.Fatal(strings.Join(wrong, "\n"))
				}
				f, err := w.next()
				if err != nil {
					t.Fatal(err)
				}
				p, err := packet.ParsePublish(f)
				if err != nil {
					t.Fatalf("%s: %v", describe(f), err)
				}
				if p.QoS != 0 || p.Retain {
					t.Fatalf("%s at QoS %d, retain %v", p.Topic, p.QoS, p.Retain)
				}
				got[string(p.Topic)] = string(p.Payload)
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
