package broker

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"
)

// What another implementation makes of the broker's MQTT 5.0.
func TestPahoGolang(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		nc, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *paho.Publish, 10)
		c := paho.NewClient(paho.ClientConfig{
			Conn: nc,
			OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
				got <- p.Packet
				return true, nil
			}},
		})
		ack, err := c.Connect(ctx, &paho.Connect{CleanStart: true, KeepAlive: 30})
		if err != nil || ack.Properties.AssignedClientID == "" {
			t.Fatalf("%+v, %v", ack, err)
		}
		id := 5
		if _, err := c.Subscribe(ctx, &paho.Subscribe{
			Properties:    &paho.SubscribeProperties{SubscriptionIdentifier: &id},
			Subscriptions: []paho.SubscribeOptions{{Topic: "a/+", QoS: 2}},
		}); err != nil {
			t.Fatal(err)
		}
		for qos := range byte(3) {
			expiry := uint32(60)
			_, err := c.Publish(ctx, &paho.Publish{
				Topic: "a/b", QoS: qos, Payload: []byte("x"),
				Properties: &paho.PublishProperties{
					ContentType: "text", ResponseTopic: "re", CorrelationData: []byte{1}, MessageExpiry: &expiry,
					User: paho.UserProperties{{Key: "k", Value: "1"}, {Key: "k", Value: "2"}},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case p := <-got:
				q := p.Properties
				if p.QoS != qos || p.Topic != "a/b" || q.ContentType != "text" || q.ResponseTopic != "re" || len(q.User) != 2 ||
					q.User[1].Value != "2" || q.SubscriptionIdentifier == nil || *q.SubscriptionIdentifier != id || q.MessageExpiry == nil {
					t.Errorf("QoS %d: %v %+v", qos, p, q)
				}
			case <-ctx.Done():
				t.Fatal("no message")
			}
		}
		if _, err := c.Unsubscribe(ctx, &paho.Unsubscribe{Topics: []string{"a/+"}}); err != nil {
			t.Fatal(err)
		}
		if err := c.Disconnect(&paho.Disconnect{}); err != nil {
			t.Fatal(err)
		}
	})
}

// autopaho reconnects by itself; nothing that was published meanwhile is lost.
func TestAutopaho(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		const n = 20
		got, up := make(chan string, 2*n), make(chan bool, 10)
		server := &url.URL{Scheme: "mqtt", Host: s.Addr().String()}
		cm, err := autopaho.NewConnection(ctx, autopaho.ClientConfig{
			ServerUrls: []*url.URL{server}, KeepAlive: 30, SessionExpiryInterval: 600,
			ReconnectBackoff: func(int) time.Duration { return 20 * time.Millisecond },
			OnConnectionUp: func(cm *autopaho.ConnectionManager, a *paho.Connack) {
				if !a.SessionPresent {
					if _, err := cm.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "a", QoS: 2}}}); err != nil {
						t.Error(err)
					}
				}
				up <- a.SessionPresent
			},
			ClientConfig: paho.ClientConfig{
				ClientID: "auto",
				OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
					got <- string(p.Packet.Payload)
					return true, nil
				}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if <-up {
			t.Error("a session from nowhere")
		}
		p := connect(t, s, "p")
		for i := range n {
			if i == n/2 {
				cl := s.client("auto")
				cl.mu.Lock()
				_ = cl.conn.nc.Close()
				cl.mu.Unlock()
			}
			id := uint16(i + 1)
			p.send(pub(id, 1, "a", fmt.Sprint(i)))
			p.want(fmt.Sprint("PUBACK ", id))
		}
		if !<-up {
			t.Error("the session is not resumed")
		}
		// At QoS 1 a message may come twice; none may be missing, and the last comes last.
		seen := map[string]bool{}
		for len(seen) < n {
			select {
			case m := <-got:
				seen[m] = true
			case <-ctx.Done():
				t.Fatalf("%d of %d messages", len(seen), n)
			}
		}
		if err := cm.Disconnect(ctx); err != nil {
			t.Fatal(err)
		}
	})
}
