package broker

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"
)

// autopaho over each kind of listener: everything of an exchange at each QoS, a session that is kept over cuts, and
// payloads that no frame or record holds.
func TestAutopahoOnEveryListener(t *testing.T) {
	t.Parallel()
	s, ca, urls := secured(t, files(t, "", "alice"))
	for scheme, text := range urls {
		t.Run(scheme, func(t *testing.T) {
			server, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			id := "auto-" + scheme
			got, up := make(chan *paho.Publish, 1000), make(chan bool, 100)
			cm, err := autopaho.NewConnection(ctx, autopaho.ClientConfig{
				ServerUrls: []*url.URL{server}, TlsCfg: ca.Client("-"), KeepAlive: 30, SessionExpiryInterval: 600,
				ConnectUsername: "alice", ConnectPassword: []byte("pw-alice"),
				ReconnectBackoff: func(int) time.Duration { return 5 * time.Millisecond },
				OnConnectionUp:   func(_ *autopaho.ConnectionManager, a *paho.Connack) { up <- a.SessionPresent },
				ClientConfig: paho.ClientConfig{
					ClientID: id,
					OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
						got <- p.Packet
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
			number := 7
			if _, err := cm.Subscribe(ctx, &paho.Subscribe{
				Properties:    &paho.SubscribeProperties{SubscriptionIdentifier: &number},
				Subscriptions: []paho.SubscribeOptions{{Topic: scheme + "/+", QoS: 2}},
			}); err != nil {
				t.Fatal(err)
			}
			want := func(qos byte, payload []byte) {
				t.Helper()
				select {
				case p := <-got:
					q := p.Properties
					if p.QoS != qos || !bytes.Equal(p.Payload, payload) || q.SubscriptionIdentifier == nil || *q.SubscriptionIdentifier != number ||
						q.ContentType != "text" || q.User.Get("k") != "v" {
						t.Fatalf("QoS %d, %d bytes: %.100v", qos, len(payload), p)
					}
				case <-ctx.Done():
					t.Fatal("no message")
				}
			}
			publish := func(qos byte, payload []byte) error {
				_, err := cm.Publish(ctx, &paho.Publish{
					Topic: scheme + "/a", QoS: qos, Payload: payload,
					Properties: &paho.PublishProperties{ContentType: "text", User: paho.UserProperties{{Key: "k", Value: "v"}}},
				})
				return err
			}
			for qos := range byte(3) {
				for _, size := range []int{0, 1, 300 << 10} {
					payload := bytes.Repeat([]byte("x"), size)
					if err := publish(qos, payload); err != nil {
						t.Fatal(err)
					}
					want(qos, payload)
				}
			}
			// A kept session is resumed each time, and goes on where it was.
			for i := range 5 {
				cl := s.client(id)
				cl.mu.Lock()
				_ = cl.conn.nc.Close()
				cl.mu.Unlock()
				if !<-up {
					t.Error("the session is not resumed")
				}
				payload := fmt.Append(nil, i)
				if err := publish(2, payload); err != nil {
					t.Fatal(err)
				}
				want(2, payload)
			}
			if err := cm.Disconnect(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}
