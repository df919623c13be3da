package broker

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"inflight/broker/internal/testcert"
	"inflight/broker/internal/testnats"
	"inflight/broker/node"
	"inflight/broker/packet"
)

// remoteConfig is a broker on NATS servers.
func remoteConfig(t testing.TB, name string, urls ...string) Config {
	return Config{
		Listen: "127.0.0.1:0", Pipeline: true, Log: testLog(t), Node: name, Lead: true, NATS: node.Servers{URLs: urls},
	}
}

// openRemote wants an error of a start.
func openRemote(t testing.TB, cfg Config) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := Open(ctx, cfg)
	if err == nil {
		s.Shutdown()
	}
	return err
}

// Two broker processes on the same NATS servers are one broker.
func TestRemoteIsOneBroker(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, a, b *Server) {
		// Publications and retained messages of one reach subscribers of the other.
		w := connect(t, b, "watcher")
		w.subscribe("x/#", 2)
		p := connect(t, a, "publisher", "keep")
		p.send(pub(1, 1, "x/1", "one"), packet.AppendPublish(nil, &packet.Publish{Topic: []byte("x/kept"), Payload: []byte("r"), QoS: 1, ID: 2, Retain: true}))
		p.want("PUBACK 1", "PUBACK 2")
		w.want(`PUBLISH q1 x/1 "one"`, `PUBLISH q1 x/kept "r"`)
		p.send(pub(0, 0, "x/0", "zero"))
		w.want(`PUBLISH q0 x/0 "zero"`)
		late := connect(t, b, "late")
		late.subscribe("x/kept", 1)
		late.want(`PUBLISH q1 x/kept "r" retain`)

		// A QoS 2 exchange begun on one is completed on the other, once.
		p.send(pub(7, 2, "x/2", "two"))
		p.want("PUBREC 7")
		p.cut()
		p = connect(t, b, "publisher", "keep", "present")
		p.send(dup(7, 2, "x/2", "two"))
		p.want("PUBREC 7")
		p.send(ack(packet.PUBREL, 7))
		p.want("PUBCOMP 7")
		w.take(`PUBLISH q2 x/2 "two"`)
		w.wantQuiet()

		// A kept session waits where its client is not, and moves with it while it is connected.
		k := connect(t, a, "kept", "keep")
		k.subscribe("k", 1)
		k.cut()
		away(t, a, "kept")
		p.send(pub(8, 1, "k", "waits"))
		p.want("PUBACK 8")
		k = connect(t, b, "kept", "keep", "present")
		k.want(`PUBLISH q1 k "waits"`)
		again := connect(t, a, "kept", "keep", "present")
		k.wantClosed()
		again.want(`PUBLISH q1 k "waits" dup`)
	}
	t.Run("one server", func(t *testing.T) {
		o := testnats.Start(t)
		run(t, start(t, remoteConfig(t, "a", o.URL(nil))), start(t, remoteConfig(t, "b", o.URL(nil))))
	})
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprintf("three servers, %d replicas", replicas), func(t *testing.T) {
			if testing.Short() {
				t.Skip("starts a cluster of three; run without -short")
			}
			trio := testnats.Trio(t)
			broker := func(name string, first int) *Server {
				cfg := remoteConfig(t, name, append(testnats.URLs(trio[first:]), testnats.URLs(trio[:first])...)...)
				cfg.Replicas = replicas
				return start(t, cfg)
			}
			run(t, broker("a", 0), broker("b", 1))
		})
	}
}

// Every way to say who the broker is.
func TestRemoteCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kp, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := kp.Seed()
	public, _ := kp.PublicKey()
	nkey := filepath.Join(dir, "nkey")
	if err := os.WriteFile(nkey, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	ca := testcert.New(t)
	cert, key, caFile := ca.Write(t.TempDir(), "broker")
	withTLS := func(verify bool) func(*server.Options) {
		return func(o *server.Options) {
			tc, err := server.GenTLSConfig(&server.TLSConfigOpts{CertFile: cert, KeyFile: key, CaFile: caFile, Verify: verify})
			if err != nil {
				t.Fatal(err)
			}
			o.TLS, o.TLSVerify, o.TLSConfig, o.TLSTimeout = true, verify, tc, 5
		}
	}
	for _, c := range []struct {
		name   string
		server func(*server.Options)
		user   *url.Userinfo
		edit   func(*node.Servers)
		wrong  func(*node.Servers) // makes the server refuse
		says   string
	}{
		{
			"user and password", func(o *server.Options) { o.Username, o.Password = "u", "p/ss,w@rd" },
			url.UserPassword("u", "p/ss,w@rd"), nil,
			func(s *node.Servers) { s.URLs[0] = strings.Replace(s.URLs[0], "u:", "other:", 1) }, "refuses the credentials",
		},
		{
			"token", func(o *server.Options) { o.Authorization = "t0ken" }, url.User("t0ken"), nil,
			func(s *node.Servers) { s.URLs[0] = strings.Replace(s.URLs[0], "t0ken@", "", 1) }, "refuses the credentials",
		},
		{
			"nkey", func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} }, nil,
			func(s *node.Servers) { s.NKey = nkey }, func(s *node.Servers) { s.NKey = "" }, "refuses the credentials",
		},
		{
			"TLS", withTLS(false), nil, func(s *node.Servers) { s.CA = caFile },
			func(s *node.Servers) { s.CA = ""; s.URLs[0] = strings.Replace(s.URLs[0], "nats:", "tls:", 1) }, "give that with --nats-ca",
		},
		{
			"a client certificate", withTLS(true), nil, func(s *node.Servers) { s.CA, s.Cert, s.Key = caFile, cert, key },
			func(s *node.Servers) { s.Cert, s.Key = "", "" }, "with --nats-cert and --nats-key",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := testnats.Start(t, c.server)
			cfg := remoteConfig(t, "a", o.URL(c.user))
			if c.edit != nil {
				c.edit(&cfg.NATS)
			}
			cfg.NATS.URLs = append(cfg.NATS.URLs, fmt.Sprintf("nats://127.0.0.1:%d", o.Options.Port)) // the same, with the user of the first
			s := start(t, cfg)
			p := connect(t, s, "p")
			p.send(pub(1, 1, "t", "x"))
			p.want("PUBACK 1")
			s.Shutdown()

			cfg.NATS.URLs = cfg.NATS.URLs[:1]
			c.wrong(&cfg.NATS)
			err := openRemote(t, cfg)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("refused with %v, want %q", err, c.says)
			}
			if err != nil && (strings.Contains(err.Error(), "p/ss") || strings.Contains(err.Error(), "%2F") || strings.Contains(err.Error(), "t0ken") || strings.Contains(err.Error(), "\n")) {
				t.Errorf("the error shows a password or takes several lines: %q", err)
			}
		})
	}
}

// Whatever keeps a broker from working with the servers is one sentence at its start.
func TestRemoteRefusals(t *testing.T) {
	t.Parallel()
	permit := func(publish, subscribe []string) func(*server.Options) {
		return func(o *server.Options) {
			o.Users = []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: subscribe},
			}}}
		}
	}
	user := url.UserPassword("u", "p")
	full := []string{"inf.>", "$JS.API.>", "$JS.ACK.>"}
	for _, c := range []struct {
		reason string
		server func(*server.Options)
		user   *url.Userinfo
		edit   func(*Config)
		says   []string // none: it starts
	}{
		{"what the README asks for is enough", permit(full, []string{"inf.>"}), user, nil, nil},
		{"no JetStream", func(o *server.Options) { o.JetStream = false }, nil, nil, []string{"no JetStream", "nats-server -js"}},
		{"no permission for the API", permit([]string{"inf.>"}, []string{"inf.>"}), user, nil, []string{"no permission for publish to", "$JS.API.INFO", "let it publish to"}},
		{"no permission to publish", permit([]string{"inf.c.>", "inf.i.>", "$JS.>"}, []string{"inf.>"}), user, nil, []string{"no permission for publish to", "inf.h."}},
		{"no permission to acknowledge", permit([]string{"inf.>", "$JS.API.>"}, []string{"inf.>"}), user, nil, []string{"no permission for publish to", "$JS.ACK."}},
		{"no permission to subscribe", permit(full, []string{"inf.i.>"}), user, nil, []string{"no permission for subscription to", "inf.d."}},
		{"replicas on one server", nil, nil, func(c *Config) { c.Replicas = 3 }, []string{"3 replicas", "--replicas 1"}},
		{"packets that the servers do not take", nil, nil, func(c *Config) { c.MaxPacket = 4 << 20 }, []string{"4194304", "1048576", "982017", "--max-packet"}},
		{"hardly any packet fits", func(o *server.Options) { o.MaxPayload = 100_000 }, nil, nil, []string{"100000", "max_payload"}},
		{"TLS to a server without", nil, nil, func(c *Config) {
			c.NATS.URLs[0] = strings.Replace(c.NATS.URLs[0], "nats:", "tls:", 1)
		}, []string{"does not speak TLS"}},
		{"a file that is not there", nil, nil, func(c *Config) { c.NATS.NKey = filepath.Join(c.NATS.URLs[0], "x") }, []string{"--nats-nkey", "no such file"}},
		{"a CA that is not there", nil, nil, func(c *Config) { c.NATS.CA = "no/such.pem" }, []string{"no/such.pem"}},
		{"credentials that are not there", nil, nil, func(c *Config) { c.NATS.Creds = "no/such.creds" }, []string{"no/such.creds"}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			var edits []func(*server.Options)
			if c.server != nil {
				edits = append(edits, c.server)
			}
			o := testnats.Start(t, edits...)
			cfg := remoteConfig(t, "a", o.URL(c.user))
			if c.edit != nil {
				c.edit(&cfg)
			}
			err := openRemote(t, cfg)
			if (err == nil) != (len(c.says) == 0) {
				t.Fatalf("it starts with %v", err)
			}
			for _, part := range c.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("it says %q, want %q", err, part)
				}
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("it takes several lines: %q", err)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		port := testnats.Port(t)
		err := openRemote(t, remoteConfig(t, "a", fmt.Sprintf("nats://u:secret@127.0.0.1:%d", port)))
		if err == nil || !strings.Contains(err.Error(), "nobody listens") || !strings.Contains(err.Error(), fmt.Sprint(port)) || strings.Contains(err.Error(), "secret") {
			t.Errorf("it says %v", err)
		}
	})
	t.Run("two of one name", func(t *testing.T) {
		o := testnats.Start(t)
		first := start(t, remoteConfig(t, "a", o.URL(nil)))
		err := openRemote(t, remoteConfig(t, "a", o.URL(nil)))
		if err == nil || !strings.Contains(err.Error(), `is named "a"`) {
			t.Errorf("the second one says %v", err)
		}
		first.Shutdown()
		start(t, remoteConfig(t, "a", o.URL(nil))) // now it is free
	})
	t.Run("two of one name at once", func(t *testing.T) {
		o := testnats.Start(t)
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				s, err := Open(t.Context(), remoteConfig(t, "a", o.URL(nil)))
				if errs[i] = err; err == nil {
					t.Cleanup(s.Shutdown)
				}
			})
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("they say %v and %v, want one to remain", errs[0], errs[1])
		}
	})
}

// The limits that servers have by default hold up one client at most: a topic that does not fit a line would cost the
// connection to NATS, and the 1,001st subscription would be refused.
func TestRemoteLimits(t *testing.T) {
	t.Parallel()
	o := testnats.Start(t)
	s := start(t, remoteConfig(t, "a", o.URL(nil)))
	long := connect(t, s, "long")
	fits := strings.Repeat("t", 3000)
	long.subscribe(fits, 1)
	long.send(pub(1, 1, fits, "x"))
	for range 2 { // the PUBACK and the delivery come in any order
		if _, err := long.next(); err != nil {
			t.Fatal(err)
		}
	}
	for i, topic := range []string{strings.Repeat("t", 4000), strings.Repeat("\x01", 2000), strings.Repeat("t", 65_535)} {
		for qos := range byte(3) {
			p := connect(t, s, fmt.Sprintf("p%d-%d", i, qos))
			p.send(pub(1, qos, topic, "x"))
			p.wantClosed()
		}
		p := connect(t, s, fmt.Sprintf("s%d", i))
		p.send(packet.AppendSubscribe(nil, &packet.Subscribe{ID: 1, Subscriptions: []packet.Subscription{{Filter: topic, QoS: 1}}}))
		p.want("SUBACK 1 [128]")
	}
	if _, lost := s.remote.Down(time.Now()); lost != 0 {
		t.Errorf("the connection to NATS was lost %d times", lost)
	}
	long.ping()
	js, err := jetstream.New(s.nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "INF_msgs")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().Config.MaxConsumers; n < 100_000 {
		t.Errorf("the stream takes %d consumers, and each subscription is one", n)
	}
}
