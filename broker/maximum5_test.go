package broker

import (
	"fmt"
	"testing"
	"time"

	"inflight/broker/packet"
)

// granted connects and returns what the CONNACK says about Keep Alive and Session Expiry.
func granted(t *testing.T, s *Server, c *packet.Connect) (p *peer5, keepAlive, expiry string) {
	t.Helper()
	p = dial5(t, s)
	p.send(packet.V5.AppendConnect(nil, c))
	f, err := p.next()
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.codec.ParseConnack(f)
	if err != nil || a.Code != 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	keepAlive, expiry = "not said", "not said"
	if v := a.Properties.ServerKeepAlive; v.Set {
		keepAlive = fmt.Sprint(v.Value)
	}
	if v := a.Properties.SessionExpiry; v.Set {
		expiry = fmt.Sprint(v.Value)
	}
	return p, keepAlive, expiry
}

// What the broker grants less of than a client asks for, it says; and nothing else.
func TestMaximaAreSaid(t *testing.T) {
	t.Parallel()
	none := open(t, StoreMemory)
	some := open(t, StoreMemory, func(c *Config) { c.MaxKeepAlive, c.MaxSessionExpiry = 60*time.Second, time.Hour })
	for _, c := range []struct {
		reason            string
		s                 *Server
		keepAlive         uint16
		expiry            packet.Opt[uint32]
		wantKeep, wantExp string
	}{
		{"no maximum, nothing asked", none, 0, packet.Opt[uint32]{}, "not said", "not said"},
		{"no maximum, much asked", none, 65_535, packet.Some[uint32](neverExpires), "not said", "not said"},
		{"below", some, 59, packet.Some[uint32](3599), "not said", "not said"},
		{"at the maximum", some, 60, packet.Some[uint32](3600), "not said", "not said"},
		{"above [MQTT-3.2.2-21]", some, 61, packet.Some[uint32](3601), "60", "3600"},
		{"no Keep Alive is more than any, a session that never ends too", some, 0, packet.Some[uint32](neverExpires), "60", "3600"},
		{"a session that ends with its connection", some, 10, packet.Some[uint32](0), "not said", "not said"},
		{"no properties at all", some, 600, packet.Opt[uint32]{}, "60", "not said"},
	} {
		connect := packet.Connect{ClientID: "m", CleanSession: true, KeepAlive: c.keepAlive}
		if c.expiry.Set {
			connect.Properties = &props{SessionExpiry: c.expiry}
		}
		p, keepAlive, expiry := granted(t, c.s, &connect)
		if keepAlive != c.wantKeep || expiry != c.wantExp {
			t.Errorf("%s: Keep Alive %s and Session Expiry %s, want %s and %s", c.reason, keepAlive, expiry, c.wantKeep, c.wantExp)
		}
		p.leave(packet.Disconnect{})
	}
}

// What is said is what holds.
func TestMaximaHold(t *testing.T) {
	t.Parallel()
	for _, store := range []string{StoreMemory, StoreStaged, StoreJournal} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			s := open(t, store, func(c *Config) { c.MaxKeepAlive, c.MaxSessionExpiry = time.Second, time.Second })
			// 1.5 times the Server Keep Alive, not what the client asked for [MQTT-3.1.2-22].
			began := time.Now()
			p, _, _ := granted(t, s, &packet.Connect{ClientID: "k", CleanSession: true, KeepAlive: 600})
			p.wantEnd(packet.KeepAliveTimeout)
			if took := time.Since(began); took < 1500*time.Millisecond {
				t.Errorf("closed after %v, Keep Alive is 1 s", took)
			}
			// A client of 3.1.1 cannot be told a Keep Alive and keeps its own.
			old := dial(t, s)
			old.send(packet.AppendConnect(nil, &packet.Connect{ClientID: "old", KeepAlive: 600}))
			old.want("CONNACK present=false code=0")

			for _, c := range []struct {
				reason  string
				connect packet.Connect
				end     packet.Disconnect
			}{
				{"asked for at CONNECT", packet.Connect{ClientID: "a", Properties: &props{SessionExpiry: packet.Some[uint32](600)}}, packet.Disconnect{}},
				{
					"and at DISCONNECT",
					packet.Connect{ClientID: "b", Properties: &props{SessionExpiry: packet.Some[uint32](1)}},
					packet.Disconnect{Properties: &props{SessionExpiry: packet.Some[uint32](neverExpires)}},
				},
			} {
				c.connect.KeepAlive = 1
				connect5(t, s, &c.connect, false).leave(c.end)
				eventually(t, func() bool { return s.client(c.connect.ClientID) == nil })
				connect5(t, s, &c.connect, false).leave(packet.Disconnect{})
			}
			// Nor does a session of 3.1.1 outlive the maximum, which its client cannot be told either.
			old.ping() // it is past the Keep Alive that the others get
			old.send(packet.AppendEmpty(nil, packet.DISCONNECT))
			old.wantClosed()
			eventually(t, func() bool { return s.client("old") == nil })
			connect(t, s, "old", "keep")
		})
	}
}
