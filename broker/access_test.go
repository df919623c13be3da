package broker

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	mqtt "github.com/eclipse/paho.mqtt.golang"
	"golang.org/x/crypto/bcrypt"

	"inflight/broker/internal/testcert"
	"inflight/broker/packet"
)

func TestWhoMayConnectWhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why       string
		edit      func(*Config)
		err       string // "": valid
		anonymous bool
	}{
		{"the default listener", func(*Config) {}, "", true},
		{"a listener by URL takes its place", func(c *Config) { c.Listeners = []string{"ws://[::1]:0"} }, "", true},
		{"loopback with passwords", func(c *Config) { c.PasswordFile = "p" }, "", false},
		{"loopback with passwords, if asked for", func(c *Config) { c.PasswordFile, c.AllowAnonymous = "p", true }, "", true},
		{"other machines", func(c *Config) { c.Listen = ":1883" }, "can be reached from other machines", false},
		{"other machines on one of two", func(c *Config) {
			c.Listeners = []string{"mqtt://127.0.0.1:1883", "ws://0.0.0.0:80"}
		}, "listener ws://0.0.0.0:80 can be reached", false},
		{"other machines, if asked for", func(c *Config) { c.Listen, c.AllowAnonymous = ":1883", true }, "", true},
		{"other machines with passwords", func(c *Config) { c.Listen, c.PasswordFile = ":1883", "p" }, "", false},
		{"an ACL proves no name", func(c *Config) { c.Listen, c.ACLFile = ":1883", "a" }, "can be reached", false},
		{"TLS alone proves no client", func(c *Config) {
			c.Listeners, c.Cert, c.Key = []string{"mqtts://:8883"}, "c", "k"
		}, "can be reached", false},
		{"client certificates", func(c *Config) {
			c.Listeners, c.Cert, c.Key, c.ClientCA = []string{"mqtts://:8883"}, "c", "k", "ca"
		}, "", false},
		{"client certificates do not help a plain listener", func(c *Config) {
			c.Listeners, c.Cert, c.Key, c.ClientCA = []string{"mqtts://:8883", "mqtt://:1883"}, "c", "k", "ca"
		}, "listener mqtt://:1883 can be reached", false},
		{"a listener that is none", func(c *Config) { c.Listeners = []string{"gopher://x:1"} }, "unknown scheme", false},
		{"no listener and no proof", func(c *Config) { c.NoListener = true }, "no client could prove who it is", false},
		{"no listener and passwords", func(c *Config) { c.NoListener, c.PasswordFile = true, "p" }, "", false},
		{"no listener, if asked for", func(c *Config) { c.NoListener, c.AllowAnonymous = true, true }, "", true},
		{"no listener beside one", func(c *Config) { c.NoListener, c.Listen = true, "127.0.0.1:1" }, "none is to be opened", false},
		{"no certificate", func(c *Config) { c.Listeners = []string{"wss://127.0.0.1:1"} }, "--cert", false},
	} {
		cfg := Config{Store: StoreMemory}
		c.edit(&cfg)
		cfg = cfg.withDefaults()
		err := cfg.validate()
		if (c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.why, err, c.err)
		}
		if err == nil && cfg.anonymous() != c.anonymous {
			t.Errorf("%s: anonymous is %v, want %v", c.why, cfg.anonymous(), c.anonymous)
		}
	}
}

// files writes a password file, in which each user's password is "pw-" and the name, and an ACL file.
func files(t *testing.T, acl string, users ...string) func(*Config) {
	t.Helper()
	dir := t.TempDir()
	text := ""
	for _, u := range users {
		text += userLine(t, u, "pw-"+u)
	}
	pw := filepath.Join(dir, "users")
	write(t, pw, text)
	return func(c *Config) {
		c.PasswordFile = pw
		if acl != "" {
			c.ACLFile = filepath.Join(dir, "acl")
			write(t, c.ACLFile, acl)
		}
	}
}

func userLine(t *testing.T, user, password string) string {
	t.Helper()
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return user + ":" + string(h) + "\n"
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// as connects a user with their password.
func as(t *testing.T, s *Server, user, id string, edit ...func(*packet.Connect)) *peer {
	t.Helper()
	p := dial(t, s)
	c := &packet.Connect{
		ClientID: id, CleanSession: true, HasUsername: true, Username: user, HasPassword: true, Password: []byte("pw-" + user),
	}
	for _, e := range edit {
		e(c)
	}
	p.send(packet.AppendConnect(nil, c))
	return p
}

func TestConnackOfCredentials(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory, files(t, "user alice allow both a/#\n", "alice", "bob"))
	will := func(topic string) func(*packet.Connect) {
		return func(c *packet.Connect) { c.Will = &packet.Will{Topic: topic, Payload: []byte("w")} }
	}
	for _, c := range []struct {
		why  string
		edit func(*packet.Connect)
		code byte
	}{
		{"the right password", func(*packet.Connect) {}, packet.Accepted},
		{"a wrong password", func(c *packet.Connect) { c.Password = []byte("x") }, packet.RefusedCredentials},
		{"another user's", func(c *packet.Connect) { c.Username = "bob" }, packet.RefusedCredentials},
		{"an unknown user", func(c *packet.Connect) { c.Username = "eve" }, packet.RefusedCredentials},
		{"an empty name", func(c *packet.Connect) { c.Username = "" }, packet.RefusedCredentials},
		{"no password", func(c *packet.Connect) { c.HasPassword, c.Password = false, nil }, packet.RefusedCredentials},
		{"no name", func(c *packet.Connect) {
			c.HasUsername, c.Username, c.HasPassword, c.Password = false, "", false, nil
		}, packet.RefusedUnauthorized},
		{"a will that is allowed", will("a/w"), packet.Accepted},
		{"a will that is not", will("b"), packet.RefusedUnauthorized},
	} {
		p := as(t, s, "alice", "id", c.edit)
		f, err := p.next()
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		if want := fmt.Sprintf("CONNACK present=false code=%d", c.code); describe(f) != want {
			t.Errorf("%s: %s, want %s", c.why, describe(f), want)
		}
		if c.code != packet.Accepted {
			p.wantClosed() // [MQTT-3.2.2-5]
		}
	}
	// A client that was refused must not have taken anything over.
	in := as(t, s, "alice", "mine")
	in.want("CONNACK present=false code=0")
	as(t, s, "alice", "mine", func(c *packet.Connect) { c.Password = []byte("x") }).want("CONNACK present=false code=4")
	in.subscribe("a/x", 0)
}

const rules = `# a device writes below its name
user dev-* allow publish d/%u/#
user dev-* allow subscribe c/%u/+
user boss deny subscribe d/secret/#
user boss allow both d/#
user boss allow both c/#
`

func TestUnauthorised(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory, files(t, rules, "dev-1", "boss"))
	boss := as(t, s, "boss", "boss")
	boss.want("CONNACK present=false code=0")
	boss.send(packet.AppendSubscribe(nil, &packet.Subscribe{ID: 7, Subscriptions: []packet.Subscription{
		{Filter: "d/+/t", QoS: 2},  // d/secret/t is in it
		{Filter: "d/#", QoS: 1},    // too
		{Filter: "d/dev-1/#"},      // is not
		{Filter: "#", QoS: 1},      // more than any rule covers
		{Filter: "c/x/y", QoS: 1},  // fine
		{Filter: "$SYS/#", QoS: 1}, // nobody said so
	}}))
	boss.want("SUBACK 7 [128 128 0 128 1 128]") // [MQTT-3.8.4-5]
	for qos := range byte(3) {
		dev := as(t, s, "dev-1", "dev")
		dev.want("CONNACK present=false code=0")
		id := uint16(qos) // 0 at QoS 0
		dev.send(pub(id, qos, "d/dev-1/t", fmt.Sprint("mine", qos)))
		if qos > 0 {
			dev.want(fmt.Sprintf("%v %d", map[byte]packet.Type{1: packet.PUBACK, 2: packet.PUBREC}[qos], id))
		}
		if qos == 2 {
			dev.send(ack(packet.PUBREL, id))
			dev.want("PUBCOMP 2")
		}
		boss.want(fmt.Sprintf(`PUBLISH q0 d/dev-1/t "mine%d"`, qos))
		// Another's topic: the connection is closed, and nothing of it is acknowledged or delivered [MQTT-3.3.5-2].
		if qos > 0 {
			id += 10
		}
		dev.send(pub(id, qos, "c/x/y", "forged"))
		dev.wantClosed()
	}
	boss.wantQuiet()
}

// A session is not handed to somebody who may not have its subscriptions.
func TestSessionOfSomebodyElse(t *testing.T) {
	t.Parallel()
	eachStoreWith(t, files(t, rules+"user eve allow subscribe e\n", "boss", "eve", "dev-1"), func(t *testing.T, s *Server) {
		keep := func(c *packet.Connect) { c.CleanSession = false }
		boss := as(t, s, "boss", "shared-id", keep)
		boss.want("CONNACK present=false code=0")
		boss.subscribe("d/dev-1/#", 1)
		boss.send(packet.AppendEmpty(nil, packet.DISCONNECT))
		boss.wantClosed()
		away(t, s, "shared-id")
		dev := as(t, s, "dev-1", "dev")
		dev.want("CONNACK present=false code=0")
		dev.send(pub(1, 1, "d/dev-1/t", "for the boss"))
		dev.want("PUBACK 1")
		again := as(t, s, "boss", "shared-id", keep)
		again.want("CONNACK present=true code=0", `PUBLISH q1 d/dev-1/t "for the boss"`)
		again.cut()
		eve := as(t, s, "eve", "shared-id", keep)
		eve.want("CONNACK present=false code=0")
		eve.wantQuiet()
		dev.send(pub(2, 1, "d/dev-1/t", "still for the boss"))
		dev.want("PUBACK 2")
		eve.wantQuiet()
	})
}

func eachStoreWith(t *testing.T, edit func(*Config), run func(t *testing.T, s *Server)) {
	for _, name := range []string{StoreMemory, StoreStaged, StoreJournal} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, open(t, name, edit))
		})
	}
}

func TestReload(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	var cfg Config
	edit := files(t, rules, "dev-1", "boss", "dev-2")
	s := open(t, StoreMemory, edit, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
		cfg = *c
	})
	connectAs := func(user string) *peer {
		p := as(t, s, user, user)
		p.want("CONNACK present=false code=0")
		return p
	}
	boss, one, two := connectAs("boss"), connectAs("dev-1"), connectAs("dev-2")
	boss.subscribe("d/dev-1/#", 0)
	two.subscribe("c/dev-2/+", 1)

	// A broken file changes nothing.
	users, err := os.ReadFile(cfg.PasswordFile)
	if err != nil {
		t.Fatal(err)
	}
	write(t, cfg.PasswordFile, "dev-1:plain\n")
	if err := s.Reload(); err == nil || !strings.Contains(err.Error(), cfg.PasswordFile+":1: ") {
		t.Fatalf("reload of a broken file: %v", err)
	}
	write(t, cfg.PasswordFile, string(users))
	write(t, cfg.ACLFile, "nonsense\n")
	if err := s.Reload(); err == nil || !strings.Contains(err.Error(), cfg.ACLFile+":1: ") {
		t.Fatalf("reload of a broken file: %v", err)
	}
	one.send(pub(1, 1, "d/dev-1/t", "before"))
	one.want("PUBACK 1")
	boss.want(`PUBLISH q0 d/dev-1/t "before"`)
	connectAs("dev-1").send(packet.AppendEmpty(nil, packet.PINGREQ)) // takes dev-1's place
	one.wantClosed()
	one = connectAs("dev-1")

	// dev-2 is gone, the boss may not read d any more, dev-1 is as before.
	var rest []string
	for line := range strings.Lines(string(users)) {
		if !strings.HasPrefix(line, "dev-2:") {
			rest = append(rest, line)
		}
	}
	write(t, cfg.PasswordFile, strings.Join(rest, ""))
	write(t, cfg.ACLFile, strings.ReplaceAll(rules, "user boss allow both d/#", "user boss allow publish d/#"))
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	boss.wantClosed()
	two.wantClosed()
	one.send(pub(2, 1, "d/dev-1/t", "after"))
	one.want("PUBACK 2")
	as(t, s, "dev-2", "x").want("CONNACK present=false code=4")

	// Another password ends what the old one began.
	write(t, cfg.PasswordFile, userLine(t, "dev-1", "another"))
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	one.wantClosed()
	as(t, s, "dev-1", "x").want("CONNACK present=false code=4")
	if strings.Contains(log.String(), "pw-dev") || strings.Contains(log.String(), "$2a$") {
		t.Errorf("a password or a hash is in the log:\n%s", log.String())
	}
}

// Without a reload in between a CONNECT and its session nothing happens; with one the connection ends.
func TestReloadWhileConnecting(t *testing.T) {
	t.Parallel()
	var cfg Config
	s := open(t, StoreMemory, files(t, "", "alice"), func(c *Config) { cfg = *c })
	unlock := s.lockID("id") // holds the client up between its password and its session
	p := as(t, s, "alice", "id")
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		waits := s.locks["id"].refs == 2
		s.mu.Unlock()
		if waits {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the client does not come")
		}
	}
	write(t, cfg.PasswordFile, userLine(t, "bob", "x"))
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	unlock()
	_, _ = p.next() // the CONNACK may or may not be out
	p.wantClosed()
}

// pahoClient connects a real client.
func pahoClient(t *testing.T, url, user, id string, ca *testcert.CA, cert string) (mqtt.Client, error) {
	t.Helper()
	o := mqtt.NewClientOptions().AddBroker(url).SetClientID(id).SetUsername(user).SetPassword("pw-" + user).
		SetAutoReconnect(false).SetConnectRetry(false).SetConnectTimeout(patience).SetProtocolVersion(4)
	if user == "" {
		o.SetPassword("")
	}
	o.SetTLSConfig(ca.Client(cert))
	c := mqtt.NewClient(o)
	token := c.Connect()
	if !token.WaitTimeout(patience) {
		t.Fatalf("%s: no answer to CONNECT", url)
	}
	t.Cleanup(func() { c.Disconnect(0) })
	return c, token.Error()
}

// exchange publishes at QoS 2 from one real client to another.
func exchange(t *testing.T, from, to mqtt.Client, topic, text string) {
	t.Helper()
	got := make(chan string, 8)
	sub := to.Subscribe(topic, 2, func(_ mqtt.Client, m mqtt.Message) { got <- string(m.Payload()) })
	if !sub.WaitTimeout(patience) || sub.Error() != nil {
		t.Fatalf("subscribe: %v", sub.Error())
	}
	if code := sub.(*mqtt.SubscribeToken).Result()[topic]; code != 2 {
		t.Fatalf("subscribe: granted %d", code)
	}
	pub := from.Publish(topic, 2, false, text)
	if !pub.WaitTimeout(patience) || pub.Error() != nil {
		t.Fatalf("publish: %v", pub.Error())
	}
	select {
	case m := <-got:
		if m != text {
			t.Errorf("received %d bytes, want the %d that were sent", len(m), len(text))
		}
	case <-time.After(patience):
		t.Fatal("nothing is delivered")
	}
}

// secured starts a broker with a listener of each kind, and returns their URLs as paho spells them.
func secured(t *testing.T, edit ...func(*Config)) (s *Server, ca *testcert.CA, urls map[string]string) {
	t.Helper()
	ca = testcert.New(t)
	dir := t.TempDir()
	edit = append([]func(*Config){func(c *Config) {
		c.Listen = ""
		c.Listeners = []string{"mqtt://127.0.0.1:0", "mqtts://127.0.0.1:0", "ws://127.0.0.1:0/mqtt", "wss://127.0.0.1:0/mqtt"}
		c.Cert, c.Key, c.ClientCA = ca.Write(dir, "server")
		c.ClientCert = "optional"
	}}, edit...)
	s = open(t, StoreMemory, edit...)
	urls = map[string]string{}
	for _, u := range s.ln.URLs() {
		scheme, rest, _ := strings.Cut(u, "://")
		scheme = map[string]string{"mqtt": "tcp", "mqtts": "ssl", "ws": "ws", "wss": "wss"}[scheme]
		urls[scheme] = scheme + "://" + rest
	}
	return s, ca, urls
}

func TestRealClientsOnEveryListener(t *testing.T) {
	t.Parallel()
	_, ca, urls := secured(t, files(t, "user * allow both t/%u/#\nuser alice allow publish t/#\n", "alice", "bob"))
	alice, err := pahoClient(t, urls["tcp"], "alice", "alice", ca, "-")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("0123456789abcdef", 1<<13) // more than a frame, a TLS record or a buffer holds
	for scheme, url := range urls {
		t.Run(scheme, func(t *testing.T) {
			bob, err := pahoClient(t, url, "bob", "bob-"+scheme, ca, "-")
			if err != nil {
				t.Fatal(err)
			}
			exchange(t, bob, bob, "t/bob/"+scheme, "own")
			exchange(t, alice, bob, "t/bob/"+scheme+"/in", long)
			exchange(t, bob, bob, "t/bob/"+scheme+"/out", long)
			refused := bob.Subscribe("t/alice/#", 1, nil)
			refused.WaitTimeout(patience)
			if code := refused.(*mqtt.SubscribeToken).Result()["t/alice/#"]; code != 0x80 {
				t.Errorf("another's topics: granted %d, want 128", code)
			}
			if _, err := pahoClient(t, url, "eve", "eve", ca, "-"); err == nil || !strings.Contains(err.Error(), "bad user name or password") {
				t.Errorf("an unknown user: %v", err)
			}
			if _, err := pahoClient(t, url, "", "eve", ca, "-"); err == nil || !strings.Contains(err.Error(), "not Authorized") {
				t.Errorf("nobody: %v", err)
			}
			if scheme != "ssl" && scheme != "wss" {
				return
			}
			carol, err := pahoClient(t, url, "", "carol", ca, "carol")
			if err != nil {
				t.Fatalf("a client with a certificate: %v", err)
			}
			exchange(t, carol, carol, "t/carol/"+scheme, "by certificate")
			if _, err := pahoClient(t, url, "bob", "carol", ca, "carol"); err == nil || !strings.Contains(err.Error(), "not Authorized") {
				t.Errorf("a certificate and another's name: %v", err)
			}
		})
	}
}

func TestCertificateReloadWhileConnected(t *testing.T) {
	t.Parallel()
	var cfg Config
	s, ca, urls := secured(t, func(c *Config) { cfg = *c })
	for _, scheme := range []string{"ssl", "wss"} {
		before, err := pahoClient(t, urls[scheme], "", "before", ca, "-")
		if err != nil {
			t.Fatal(err)
		}
		next := testcert.New(t)
		next.Write(filepath.Dir(cfg.Cert), "server")
		if err := s.Reload(); err != nil {
			t.Fatal(err)
		}
		exchange(t, before, before, "t", "over the old certificate")
		if _, err := pahoClient(t, urls[scheme], "", "x", ca, "-"); err == nil || !strings.Contains(err.Error(), "unknown authority") {
			t.Errorf("%s: a client that trusts the old CA only: %v", scheme, err)
		}
		if _, err := pahoClient(t, urls[scheme], "", "y", next, "-"); err != nil {
			t.Errorf("%s: a client that trusts the new CA: %v", scheme, err)
		}
		ca = next
	}
}

// Packets in WebSocket frames of one byte, and several packets in one frame, mean the same [MQTT-6.0.0-2].
func TestPacketsInFrames(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory, func(c *Config) { c.Listen, c.Listeners = "", []string{"ws://127.0.0.1:0"} })
	for _, whole := range []bool{false, true} {
		c, _, err := websocket.Dial(t.Context(), s.ln.URLs()[0], &websocket.DialOptions{
			Subprotocols: []string{"mqtt"}, HTTPHeader: http.Header{},
		})
		if err != nil {
			t.Fatal(err)
		}
		nc := websocket.NetConn(t.Context(), c, websocket.MessageBinary)
		p := &peer{t: t, nc: nc, rd: packet.NewReader(nc, 4096, 0)}
		sent := bytes.Join([][]byte{
			packet.AppendConnect(nil, &packet.Connect{ClientID: "w", CleanSession: true}), pub(1, 2, "a", "x"), pub(2, 2, "a", ""), pub(3, 2, "b", "y"),
		}, nil)
		if whole {
			p.send(sent)
		} else {
			for i := range sent {
				p.send(sent[i : i+1])
			}
		}
		p.want("CONNACK present=false code=0", "PUBREC 1", "PUBREC 2", "PUBREC 3")
		p.send(packet.AppendEmpty(nil, packet.DISCONNECT))
		p.wantClosed()
		_ = c.CloseNow()
	}
}

func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory, func(c *Config) { c.MaxConnections = 1 })
	first := connect(t, s, "a")
	dial(t, s).wantClosed()
	first.cut()
	for end := time.Now().Add(patience); ; {
		p := dial(t, s)
		if _, err := p.nc.Write(packet.AppendConnect(nil, &packet.Connect{ClientID: "b", CleanSession: true})); err == nil {
			if _, err := p.next(); err == nil {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatal("the place of a closed connection is not given again")
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
