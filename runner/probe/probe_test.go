package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"inflight/broker/packet"
	"inflight/runner/check"
	"inflight/runner/history"
	"inflight/runner/result"
)

// rulesOf are the rules with the ids.
func rulesOf(ids ...string) []*check.Rule {
	var all []*check.Rule
	for _, id := range ids {
		all = append(all, check.ByID(id))
	}
	return all
}

func config(t *testing.T, addr string, ids ...string) Config {
	return Config{
		Endpoint: Endpoint{Addr: addr}, Target: "tcp://" + addr, Versions: []byte{4, 5}, Rules: rulesOf(ids...), Rounds: 2, Parallel: 4, Seed: 7, Quick: true,
		Timeout: 20 * time.Second, Dir: t.TempDir(), ToolLabel: "inflight test",
	}
}

func find(t *testing.T, c *result.Check, id, mqtt string) *result.CheckRow {
	t.Helper()
	for i := range c.Rows {
		if c.Rows[i].ID == id && c.Rows[i].MQTT == mqtt {
			return &c.Rows[i]
		}
	}
	t.Fatalf("no row %s for MQTT %s", id, mqtt)
	return nil
}

// A broker that is right passes, in both versions; what does not apply says why; everything can be judged again.
func TestRunOnABrokerThatIsRight(t *testing.T) {
	t.Parallel()
	b := startSmall(t, nil)
	ids := []string{
		"H-01", "H-03", "H-10", "A1-01", "A1-02", "A1-06", "Q2I-01", "Q2I-05", "Q2I-07", "Q2I-13", "Q2I-18", "Q2I-21", "Q2I-26", "RES-01", "RES-04", "RES-14", "RES-15", "E2E-01", "E2E-03", "ORD-05",
		"INV-DECODE", "INV-ACK", "INV-ID",
	}
	cfg := config(t, b.addr, ids...)
	events := 0
	cfg.Progress = func(Event) { events++ }
	c, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.Rows {
		switch {
		case r.ID == "H-10":
			if r.Outcome != result.CheckNotApplicable || r.Why == "" {
				t.Errorf("%s is %s (%s)", r.ID, r.Outcome, r.Why)
			}
		case r.Outcome != result.CheckOK:
			t.Errorf("%s (MQTT %s) is %s: %s %v", r.ID, r.MQTT, r.Outcome, r.Why, r.Findings)
		}
	}
	if find(t, c, "RES-04", "5.0").Rounds != 2 {
		t.Error("a racy check has not run its rounds")
	}
	if events < 20 || c.Counts.OK == 0 || c.Partial || len(c.Speaks) != 2 || c.Speaks[0].Capabilities["method"] != "A" {
		t.Errorf("%d events, counts %+v, versions %+v", events, c.Counts, c.Speaks)
	}
	if err := result.WriteCheck(cfg.Dir, c); err != nil {
		t.Fatal(err)
	}
	again, err := Replay(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if again.Counts != c.Counts {
		t.Errorf("judged again %+v, before %+v", again.Counts, c.Counts)
	}
}

// answers changes what a broker answers to one kind of packet.
func answers(t packet.Type, change func(b []byte) []byte) func(string, []byte) []byte {
	return func(_ string, b []byte) []byte {
		if packet.Type(b[0]>>4) == t {
			return change(b)
		}
		return b
	}
}

// A broker with a fault: the violation has its control, its transcript and its capture, and the invariants see it too.
func TestRunFindsAFault(t *testing.T) {
	t.Parallel()
	b := startSmall(t, answers(packet.PUBACK, func(b []byte) []byte { return append(b, b...) }))
	cfg := config(t, b.addr, "A1-01", "Q2I-01", "INV-ACK", "INV-DECODE")
	cfg.Versions = []byte{4}
	c, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	row := find(t, c, "A1-01", "3.1.1")
	if row.Outcome != result.CheckViolated || row.ViolatedLevel != "must" || row.Control == nil || row.Control.Outcome != result.CheckOK {
		t.Fatalf("%+v", row)
	}
	if inv := find(t, c, "INV-ACK", "3.1.1"); inv.Outcome != result.CheckViolated || !slices.Contains(inv.Notes, "seen in A1-01") {
		t.Errorf("the invariant: %+v", inv)
	}
	if find(t, c, "Q2I-01", "3.1.1").Outcome != result.CheckOK || find(t, c, "INV-DECODE", "3.1.1").Outcome != result.CheckOK {
		t.Error("what is right was not called so")
	}
	if len(row.Evidence) != 3 {
		t.Fatalf("evidence %v", row.Evidence)
	}
	for _, name := range row.Evidence {
		data, err := os.ReadFile(filepath.Join(cfg.Dir, name))
		if err != nil || len(data) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
		if strings.HasSuffix(name, ".md") {
			for _, want := range []string{"# A1-01, MQTT 3.1.1", "MQTT-4.3.2-2", "The control CTL-QOS0 on the same broker: ok", "p: send P1(1, A)", "PUBACK id 1"} {
				if !strings.Contains(string(data), want) {
					t.Errorf("no %q in\n%s", want, data)
				}
			}
		}
	}
	if err := result.WriteCheck(cfg.Dir, c); err != nil {
		t.Fatal(err)
	}
	again, err := Replay(cfg.Dir)
	if err != nil || again.Counts != c.Counts {
		t.Errorf("judged again %+v, %v, before %+v", again.Counts, err, c.Counts)
	}
}

// Without a green control nothing is called a violation, and what is only late once is not either.
func TestRunIsHonest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 20 s; run without -short")
	}
	t.Parallel()
	b := startSmall(t, func(client string, b []byte) []byte {
		if packet.Type(b[0]>>4) == packet.PUBLISH {
			return nil // no delivery, after the detection had its own
		}
		return b
	})
	cfg := config(t, b.addr, "A1-01")
	cfg.Versions = []byte{4}
	c, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if row := find(t, c, "A1-01", "3.1.1"); row.Outcome != result.CheckNotApplicable {
		t.Errorf("a broker that delivers nothing: %+v", row)
	}

	late := 0
	b = startSmall(t, answers(packet.PUBCOMP, func(b []byte) []byte {
		if b[2] == 0 && b[3] == 7 {
			if late++; late == 1 {
				return nil
			}
		}
		return b
	}))
	cfg = config(t, b.addr, "Q2I-06")
	cfg.Versions, cfg.Timeout = []byte{4}, 2*time.Second
	if c, err = Run(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	if row := find(t, c, "Q2I-06", "3.1.1"); row.Outcome != result.CheckInconclusive || !strings.Contains(row.Why, "not when run alone") {
		t.Errorf("late once: %+v", row)
	}

	broken := false
	b = startSmall(t, answers(packet.PUBCOMP, func(b []byte) []byte {
		if broken = broken || b[2] == 0 && b[3] == 7; broken {
			return nil
		}
		return b
	}))
	cfg.Endpoint.Addr = b.addr
	if c, err = Run(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	row := find(t, c, "Q2I-06", "3.1.1")
	if row.Outcome != result.CheckInconclusive || !strings.Contains(row.Why, "control CTL-QOS2 is not green") {
		t.Errorf("a broker that is broken for good: %+v", row)
	}
}

// listen serves every connection with f.
func listen(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f(c)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// What cannot be checked is one error that says what is wrong, and no hang.
func TestWhatIsNoBroker(t *testing.T) {
	t.Parallel()
	keep := func(c net.Conn) { t.Cleanup(func() { c.Close() }) }
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	for _, test := range []struct {
		why, addr, want string
	}{
		{"nobody listens", free.Addr().String(), "connection refused"},
		{"it closes at once", listen(t, func(c net.Conn) { c.Close() }), "closed the connection"},
		{"it accepts and never answers", listen(t, keep), "no CONNACK within"},
		{"it sends garbage", listen(t, func(c net.Conn) {
			c.Write([]byte{0x30, 255, 255, 255, 255, 255})
			keep(c)
		}), "cannot begin a control packet"},
		{"it sends a packet without end", listen(t, func(c net.Conn) {
			c.Write([]byte{0x30, 255, 255, 255, 127})
			keep(c)
		}), "268435460 bytes was announced"},
		{"it sends something else", listen(t, func(c net.Conn) {
			c.Write([]byte{0x7F, 0x45, 1})
			keep(c)
		}), `what came, "\x7fE\x01", is none: does MQTT listen there?`},
		{"it speaks HTTP", listen(t, func(c net.Conn) {
			c.Read(make([]byte, 1000))
			c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			c.Close()
		}), `what came, "HTTP/1.1 400"`},
		{"it answers with a TLS alert", listen(t, func(c net.Conn) {
			c.Read(make([]byte, 1000))
			c.Write([]byte{0x15, 3, 1, 0, 2, 2, 40})
			c.Close()
		}), "a TLS listener? try tls://"},
		{"it wants a password", listen(t, func(c net.Conn) {
			c.Read(make([]byte, 1000))
			c.Write([]byte{0x20, 2, 0, 5})
			c.Close()
		}), "--username, --password-file"},
	} {
		cfg := config(t, test.addr, "H-01")
		cfg.Versions, cfg.Timeout = []byte{4}, 500*time.Millisecond
		c, err := Run(context.Background(), cfg)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "cannot be checked") {
			t.Errorf("%s: %v, want %q", test.why, err, test.want)
		}
		if c == nil || !c.Partial || c.Speaks[0].Spoken {
			t.Errorf("%s: %+v", test.why, c)
		}
	}

	plain := config(t, startSmall(t, nil).addr, "H-01")
	plain.Endpoint.Scheme = "tls"
	if _, err := Run(context.Background(), plain); err == nil || !strings.Contains(err.Error(), "is it a TLS listener?") {
		t.Errorf("TLS with a plain port: %v", err)
	}
	plain.Endpoint.Scheme = "ws"
	if _, err := Run(context.Background(), plain); err == nil || !strings.Contains(err.Error(), "open a WebSocket at ws://") {
		t.Errorf("a WebSocket with a plain port: %v", err)
	}
	secure := listen(t, func(c net.Conn) {
		_ = tls.Server(c, &tls.Config{MinVersion: tls.VersionTLS12}).Handshake()
		c.Close()
	})
	cfg := config(t, secure, "H-01")
	cfg.Timeout = 500 * time.Millisecond
	if _, err := Run(context.Background(), cfg); err == nil {
		t.Error("a TLS port spoken to in plain is no error")
	}
}

// A broker that dies ends the run, which keeps what it has.
func TestTheBrokerDies(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 3 s; run without -short")
	}
	t.Parallel()
	b := startSmall(t, nil)
	cfg := config(t, b.addr, "H-01", "RES-15", "Q2I-13")
	died := make(chan struct{})
	cfg.Died, cfg.Why = died, func() error { return errors.New("node n1 died") }
	cfg.Parallel = 1
	cfg.Progress = func(e Event) {
		if e.Row != nil {
			select {
			case <-died:
			default:
				close(died)
			}
		}
	}
	c, err := Run(context.Background(), cfg)
	if err == nil || !strings.Contains(err.Error(), "node n1 died") || !c.Partial || !strings.Contains(c.Trouble, "node n1 died") {
		t.Errorf("%v, %+v", err, c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, config(t, b.addr, "H-01")); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that was cancelled: %v", err)
	}
}

// play runs a script of its own.
func play(t *testing.T, env Environment, write func(*check.Script)) *history.History {
	t.Helper()
	caps := check.Caps{MaxQoS: 2, Receive: 65_535, Delivers: true, Method: "A"}
	s := check.NewScript(4, caps, true, 1, 7)
	write(s)
	if env.Timeout == 0 {
		env.Timeout = 20 * time.Second
	}
	env.Tag = strings.TrimPrefix(newTag(), "-") + "1"
	return Play(context.Background(), env, "test", s, 1, 7)
}

// The steps that no rule above uses.
func TestSteps(t *testing.T) {
	t.Parallel()
	b := startSmall(t, nil)
	env := Environment{Endpoint: Endpoint{Addr: b.addr}}
	h := play(t, env, func(s *check.Script) {
		s.Watch("w", 2, "t")
		s.Connect("p", check.Kept, check.PerByte, check.Releasing)
		s.Trickle("p", 3, time.Millisecond, check.P2(1, "A"))
		s.Expect("p", check.Ack(history.PUBREC, 1), check.Ack(history.PUBCOMP, 1))
		s.Mode("w", check.Mode{Deaf: true})
		s.Quiet(20 * time.Millisecond)
		s.Mode("w", check.Mode{})
		s.Expect("w", check.Del("A"))
		s.Hook("restart")
	})
	if h.Trouble == "" || !strings.Contains(h.Trouble, "no hook restart") {
		t.Errorf("a hook that is not there: %q %q", h.Trouble, h.Stuck)
	}
	env.Hook = func(_ context.Context, name string, _ int) error {
		if name == "kill" {
			return errors.New("it will not die")
		}
		return nil
	}
	env.Memory = func() (int64, error) { return 42, nil }
	h = play(t, env, func(s *check.Script) {
		s.Connect("p")
		s.Hook("restart")
		s.Memory("before")
		s.Churn("p", check.Flow{QoS: 2, N: 300, Window: 8, Every: 5 * time.Millisecond, Cuts: 5})
		s.Flow("p", check.Flow{QoSes: []byte{0, 1, 2}, N: 30, Window: 4, Topics: 2, Prefix: "x", Batch: 2})
		s.Hook("kill")
	})
	if h.Facts["before"] != "42" || !strings.Contains(h.Trouble, "it will not die") {
		t.Errorf("memory %q, trouble %q, stuck %q", h.Facts["before"], h.Trouble, h.Stuck)
	}
	env.Memory = func() (int64, error) { return 0, errors.New("no such process") }
	for _, test := range []struct {
		why, want string
		write     func(s *check.Script)
	}{
		{"memory that cannot be read", "no such process", func(s *check.Script) { s.Memory("x") }},
		{"a connection that is not there", `no connection "q"`, func(s *check.Script) { s.Cut("q") }},
	} {
		if h := play(t, env, test.write); !strings.Contains(h.Trouble, test.want) {
			t.Errorf("%s: %q", test.why, h.Trouble)
		}
	}
	env.Memory = nil
	if h := play(t, env, func(s *check.Script) { s.Memory("x") }); !strings.Contains(h.Trouble, "cannot be read") {
		t.Errorf("no way to read the memory: %q", h.Trouble)
	}
}

// What does not come, or comes to an end, ends the script and says so.
func TestExpectations(t *testing.T) {
	t.Parallel()
	deaf := startSmall(t, func(_ string, b []byte) []byte {
		if typ := packet.Type(b[0] >> 4); typ == packet.PUBACK || typ == packet.PUBREC && b[3] == 9 {
			return nil
		}
		return b
	})
	for _, test := range []struct {
		why, want string
		write     func(s *check.Script)
	}{
		{"silence", "p: no PUBACK(1) within 1s", func(s *check.Script) {
			s.Connect("p")
			s.Exchange("p", check.P1(1, "A"))
		}},
		{"two are missing", "nor 1 other packets", func(s *check.Script) {
			s.Connect("p")
			s.Expect("p", check.Acks(history.PUBACK, 1, 2)...)
		}},
		{"the end", "closed (FIN) while PUBACK(1) was awaited", func(s *check.Script) {
			s.Connect("p")
			s.Send("p", check.Raw("type 15", 0xF0, 0))
			s.Expect("p", check.Ack(history.PUBACK, 1))
		}},
		{"no end", "did not close the connection within", func(s *check.Script) {
			s.Connect("p")
			s.ExpectClose("p")
		}},
		{"a flow that stops", "no acknowledgement within 1s, with 0 of 5", func(s *check.Script) {
			s.Connect("p")
			s.Flow("p", check.Flow{QoS: 1, N: 5, Window: 2})
		}},
		{"a flow that is cut", "with 2 of 5 messages acknowledged", func(s *check.Script) {
			s.Connect("p")
			s.Flow("p", check.Flow{QoS: 2, N: 5, Window: 1, IDs: 3, First: 7})
		}},
	} {
		h := play(t, Environment{Endpoint: Endpoint{Addr: deaf.addr}, Timeout: time.Second}, test.write)
		if !strings.Contains(h.Stuck, test.want) {
			t.Errorf("%s: stuck %q, trouble %q, want %q", test.why, h.Stuck, h.Trouble, test.want)
		}
	}
}

// A broker that asks to come again is asked again; one that never lets the client in has refused it.
func TestBusyBroker(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		why   string
		times int64
		stuck string
	}{{"twice", 2, ""}, {"always", 1 << 30, "the CONNECT was refused with 0x03"}} {
		var refused atomic.Int64
		b := startSmall(t, func(_ string, a []byte) []byte {
			if resumed := packet.Type(a[0]>>4) == packet.CONNACK && a[2] == 1; resumed && refused.Add(1) <= test.times {
				return []byte{0x20, 2, 0, 3}
			}
			return a
		})
		timeout := time.Minute
		if test.stuck != "" {
			timeout = 50 * time.Millisecond
		}
		h := play(t, Environment{Endpoint: Endpoint{Addr: b.addr}, Timeout: timeout}, func(s *check.Script) {
			s.Connect("p", check.Kept)
			s.Exchange("p", check.P2(1, "A"))
			s.Cut("p")
			s.Resume("p")
			s.Exchange("p", check.P2(2, "B"))
		})
		if h.Trouble != "" || (h.Stuck == "") != (test.stuck == "") || !strings.Contains(h.Stuck, test.stuck) {
			t.Errorf("%s: stuck %q, trouble %q, want %q", test.why, h.Stuck, h.Trouble, test.stuck)
		}
	}
}

// A replay refuses what is no check, and files outside of it.
func TestReplayRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := Replay(dir); err == nil || !strings.Contains(err.Error(), "not the directory of a conformance check") {
		t.Errorf("an empty directory: %v", err)
	}
	write := func(name string) {
		c := &result.Check{Rows: []result.CheckRow{{ID: "H-01", MQTT: "3.1.1", Histories: []string{name}}}}
		if err := result.WriteCheck(dir, c); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"../x.history": "no history of this check", "check.json": "no history of this check", "missing.history": "no such file", "bad.history": "not a history file",
	} {
		if err := os.WriteFile(filepath.Join(dir, "bad.history"), []byte("bad"), 0o600); err != nil {
			t.Fatal(err)
		}
		write(name)
		if _, err := Replay(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

func TestEndpointString(t *testing.T) {
	for want, e := range map[string]Endpoint{
		"tcp://h:1": {Addr: "h:1"}, "ws://h:1/mqtt": {Scheme: "ws", Addr: "h:1"}, "wss://h:1/x": {Scheme: "wss", Addr: "h:1", Path: "/x"}, "tls://h:1": {Scheme: "tls", Addr: "h:1"},
	} {
		if e.String() != want {
			t.Errorf("%s, want %s", e, want)
		}
	}
	if got := Explain(check.ByID("INV-ACK"), 4, check.Caps{}); !strings.Contains(got, "every connection") {
		t.Errorf("an invariant is explained as %q", got)
	}
}
