package broker

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inflight/broker/packet"
)

// tool finds a program of another implementation. Where it is missing the test is skipped with what would install it,
// unless INFLIGHT_REQUIRE_PEERS says that none may be missing.
func tool(t *testing.T, name, install string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, fmt.Sprintf("no %s here: %s", name, install))
	}
	return path
}

func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("INFLIGHT_REQUIRE_PEERS") == "1" {
		t.Fatal(why)
	}
	t.Skip(why + " (INFLIGHT_REQUIRE_PEERS=1 makes this a failure)")
}

// mosquitto runs the clients of Eclipse Mosquitto against a broker.
type mosquitto struct {
	s    *Server
	args []string // of every client
}

// mosquittos is one for each version.
func mosquittos(t *testing.T, s *Server, run func(t *testing.T, m mosquitto)) {
	t.Helper()
	for _, v := range []string{"mqttv311", "mqttv5"} {
		t.Run(v, func(t *testing.T) { run(t, newMosquitto(t, s, v)) })
	}
}

func newMosquitto(t *testing.T, s *Server, version string) mosquitto {
	t.Helper()
	tool(t, "mosquitto_pub", "apt-get install -y --no-install-recommends mosquitto-clients")
	host, port, err := net.SplitHostPort(s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return mosquitto{s: s, args: []string{"-h", host, "-p", port, "-V", version}}
}

func (m mosquitto) five() bool { return m.args[5] == "mqttv5" }

// running is a client that has been started.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *bufio.Reader // of its output
	stderr bytes.Buffer
	stop   context.CancelFunc
	ended  bool
}

// start starts mosquitto_pub, mosquitto_sub or mosquitto_rr.
func (m mosquitto) start(t *testing.T, program string, args ...string) *running {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 2*patience)
	r := &running{t: t, cmd: exec.CommandContext(ctx, program, append(append([]string(nil), m.args...), args...)...), stop: stop}
	r.cmd.Stderr = &r.stderr
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.lines = bufio.NewReader(out)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if !r.ended {
			_ = r.cmd.Wait()
		}
	})
	return r
}

// sub starts mosquitto_sub and waits until the broker has its subscriptions.
func (m mosquitto) sub(t *testing.T, id string, filters int, args ...string) *running {
	t.Helper()
	eventually(t, func() bool { return m.s.client(id) == nil }) // an earlier one of the name
	r := m.start(t, "mosquitto_sub", append([]string{"-i", id}, args...)...)
	m.subscribed(t, id, filters)
	return r
}

// subscribed waits until the broker has the subscriptions of a client, which has seen its CONNACK then.
func (m mosquitto) subscribed(t *testing.T, id string, filters int) {
	t.Helper()
	eventually(t, func() bool {
		cl := m.s.client(id)
		if cl == nil {
			return false
		}
		cl.mu.Lock()
		defer cl.mu.Unlock()
		return len(cl.subs) == filters
	})
}

// pub runs mosquitto_pub to its end.
func (m mosquitto) pub(t *testing.T, args ...string) {
	t.Helper()
	m.start(t, "mosquitto_pub", args...).wantExit(0)
}

// want wants lines of the output.
func (r *running) want(lines ...string) {
	r.t.Helper()
	for i, want := range lines {
		line, err := r.lines.ReadString('\n')
		if got := strings.TrimSuffix(line, "\n"); err != nil || got != want {
			r.t.Fatalf("line %d: want %q, got %q, %v %s", i+1, want, got, err, &r.stderr)
		}
	}
}

// wantExit wants the program to end, with no output left.
func (r *running) wantExit(code int) {
	r.t.Helper()
	rest, _ := r.lines.ReadString(0)
	r.ended = true
	_ = r.cmd.Wait()
	if got := r.cmd.ProcessState.ExitCode(); got != code || rest != "" {
		r.t.Fatalf("%v: exit code %d, want %d; output %q %s", r.cmd.Args, got, code, rest, &r.stderr)
	}
}

// TestMosquitto is what the clients of another implementation make of the broker, both versions, each store.
func TestMosquitto(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		mosquittos(t, s, func(t *testing.T, m mosquitto) {
			t.Run("QoS", m.testQoS)
			t.Run("wildcards", m.testWildcards)
			t.Run("many messages", m.testMany)
			t.Run("retained", m.testRetained)
			t.Run("will", m.testWill)
			t.Run("kept session", m.testKept)
			t.Run("clean session", m.testClean)
			t.Run("large payload", m.testLarge)
			t.Run("request and response", m.testRequest)
			if m.five() {
				t.Run("properties", m.testProperties)
				t.Run("subscription identifiers", m.testIdentifiers)
				t.Run("message expiry", m.testMessageExpiry)
				t.Run("session expiry", m.testSessionExpiry)
				t.Run("receive maximum", m.testReceiveMaximum)
				t.Run("shared subscription", m.testShared)
			}
		})
	})
}

func (m mosquitto) testQoS(t *testing.T) {
	for sub := range 3 {
		r := m.sub(t, fmt.Sprint("sub", sub), 1, "-q", fmt.Sprint(sub), "-t", "qos", "-C", "3", "-F", "%q %t %p")
		for pub := range 3 {
			m.pub(t, "-q", fmt.Sprint(pub), "-t", "qos", "-m", fmt.Sprintf("%d to %d", pub, sub))
			r.want(fmt.Sprintf("%d qos %d to %d", min(pub, sub), pub, sub))
		}
		r.wantExit(0)
	}
}

func (m mosquitto) testWildcards(t *testing.T) {
	r := m.sub(t, "wild", 2, "-q", "2", "-t", "w/+/c", "-t", "v/#", "-F", "%t")
	no := m.sub(t, "no", 1, "-t", "#", "-T", "w/#", "-T", "v/#", "-F", "%t") // everything but those, and no $ topics
	for _, name := range []string{"w/b/c", "w/b", "w//c", "$w/b/c", "w/b/c/d", "v", "v/a/b", "$SYS/x", "end/x", "v/end"} {
		m.pub(t, "-q", "1", "-t", name, "-m", "x")
	}
	r.want("w/b/c", "w//c", "v", "v/a/b", "v/end")
	no.want("end/x")
}

func (m mosquitto) testMany(t *testing.T) {
	const n = 500
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	for qos := 1; qos <= 2; qos++ {
		r := m.sub(t, "many", 1, "-q", "2", "-t", "many", "-C", fmt.Sprint(n), "-F", "%q %p")
		p := exec.CommandContext(t.Context(), "mosquitto_pub", append(append([]string(nil), m.args...), "-q", fmt.Sprint(qos), "-t", "many", "-l")...)
		p.Stdin = strings.NewReader(text.String())
		if out, err := p.CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		for i := range n {
			r.want(fmt.Sprintf("%d line %d", qos, i))
		}
		r.wantExit(0)
	}
}

func (m mosquitto) testRetained(t *testing.T) {
	m.pub(t, "-q", "2", "-r", "-t", "ret/a", "-m", "old")
	m.pub(t, "-q", "1", "-r", "-t", "ret/a", "-m", "new")
	m.pub(t, "-q", "1", "-t", "ret/a", "-m", "not kept")
	r := m.sub(t, "ret", 1, "-q", "2", "-t", "ret/#", "-F", "%q %r %t %p")
	r.want("1 1 ret/a new")
	m.pub(t, "-q", "1", "-r", "-t", "ret/a", "-m", "live")
	r.want("1 0 ret/a live")
	if m.five() {
		asPublished := m.sub(t, "rap", 1, "-q", "2", "-t", "ret/b", "--retain-as-published", "-F", "%q %r %t %p")
		m.pub(t, "-q", "1", "-r", "-t", "ret/b", "-m", "x")
		m.pub(t, "-q", "1", "-r", "-t", "ret/b", "-n")
		asPublished.want("1 1 ret/b x", "1 1 ret/b ")
		r.want("1 0 ret/b x", "1 0 ret/b ")
	}
	m.pub(t, "-q", "2", "-r", "-t", "ret/a", "-n")
	r.want("2 0 ret/a ")
	after := m.sub(t, "after", 1, "-q", "2", "-t", "ret/#", "-F", "%r %p")
	m.pub(t, "-q", "2", "-t", "ret/a", "-m", "sentinel")
	after.want("0 sentinel")
}

func (m mosquitto) testWill(t *testing.T) {
	w := m.sub(t, "mourner", 1, "-q", "2", "-t", "will/#", "-F", "%q %r %t %p")
	client := func(id string, args ...string) *running {
		return m.start(t, "mosquitto_sub", append([]string{
			"-i", id, "-t", "nothing", "--will-topic", "will/" + id, "--will-payload", "gone", "--will-qos", "2",
		}, args...)...)
	}
	connected := func(id string) { m.subscribed(t, id, 1) }
	version := m.args[5] // no client of an earlier run is taken for one of this
	killed := client("killed-" + version)
	connected("killed-" + version)
	killed.end(os.Kill)
	w.want("2 0 will/killed-" + version + " gone")
	if m.five() { // a signal makes it send a DISCONNECT with Reason Code 0x04
		told := client("told-" + version)
		connected("told-" + version)
		told.end(os.Interrupt)
		w.want("2 0 will/told-" + version + " gone")
	}
	client("leaves-"+version, "-E").wantExit(0)
	away(t, m.s, "leaves-"+version)
	m.pub(t, "-q", "2", "-t", "will/none", "-m", "sentinel")
	w.want("2 0 will/none sentinel")
}

// end signals the program and waits for it.
func (r *running) end(sig os.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatal(err)
	}
	r.ended = true
	_ = r.cmd.Wait()
}

// kept are the arguments of a client whose session is kept.
func (m mosquitto) kept(id string, args ...string) []string {
	args = append([]string{"-c", "-i", id, "-q", "2", "-t", id}, args...)
	if m.five() {
		args = append(args, "-x", "3600")
	}
	return args
}

func (m mosquitto) testKept(t *testing.T) {
	m.start(t, "mosquitto_sub", m.kept("kept", "-E")...).wantExit(0)
	var r *running
	for round := range 2 {
		for i := range 10 {
			m.pub(t, "-q", "2", "-t", "kept", "-m", fmt.Sprint(round, i))
		}
		r = m.start(t, "mosquitto_sub", m.kept("kept")...)
		for i := range 10 {
			r.want(fmt.Sprint(round, i))
		}
		if round == 0 {
			r.end(os.Interrupt)
			away(t, m.s, "kept")
		}
	}
	m.pub(t, "-q", "2", "-t", "kept", "-m", "live")
	r.want("live")
	r.end(os.Interrupt)
	m.start(t, "mosquitto_sub", "-i", "kept", "-t", "other", "-E").wantExit(0) // a clean one ends it
	away(t, m.s, "kept")
}

func (m mosquitto) testClean(t *testing.T) {
	m.start(t, "mosquitto_sub", "-i", "clean", "-q", "2", "-t", "clean", "-E").wantExit(0)
	away(t, m.s, "clean")
	m.pub(t, "-q", "2", "-t", "clean", "-m", "for nobody")
	r := m.sub(t, "clean", 1, "-q", "2", "-t", "clean")
	m.pub(t, "-q", "2", "-t", "clean", "-m", "sentinel")
	r.want("sentinel")
}

func (m mosquitto) testLarge(t *testing.T) {
	payload := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16) // 1 MiB
	file := filepath.Join(t.TempDir(), "payload")
	if err := os.WriteFile(file, payload, 0o600); err != nil {
		t.Fatal(err)
	}
	r := m.sub(t, "large", 1, "-q", "2", "-t", "large", "-C", "1", "-N")
	m.pub(t, "-q", "2", "-t", "large", "-f", file)
	got := make([]byte, len(payload))
	for n := 0; n < len(got); {
		k, err := r.lines.Read(got[n:])
		if n += k; err != nil {
			t.Fatalf("%v after %d bytes", err, n)
		}
	}
	if !bytes.Equal(got, payload) {
		t.Error("another payload arrives")
	}
	r.wantExit(0)
}

// mosquitto_rr asks, a peer of the test answers.
func (m mosquitto) testRequest(t *testing.T) {
	p := clean5(t, m.s, "responder")
	p.subscribe(0, packet.Subscription{Filter: "request", QoS: 1})
	r := m.start(t, "mosquitto_rr", "-t", "request", "-e", "response", "-m", "ask", "-q", "1", "-W", "20")
	f, err := p.next()
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.codec.ParsePublish(f)
	if err != nil || string(q.Payload) != "ask" {
		t.Fatalf("%s, %v", p.describe(f), err)
	}
	re := props{}
	if m.five() {
		if q.Properties == nil || string(q.Properties.ResponseTopic) != "response" {
			t.Fatalf("%+v", q.Properties)
		}
		re.CorrelationData = q.Properties.CorrelationData
	}
	p.send(ack5(packet.PUBACK, q.ID, 0), pub5(1, 1, "response", "answer", &re))
	r.want("answer")
	r.wantExit(0)
}

func (m mosquitto) testProperties(t *testing.T) {
	r := m.sub(t, "props", 1, "-q", "2", "-t", "props", "-F", "%C|%D|%F|%P|%R|%p")
	for qos := range 3 {
		m.pub(t, "-q", fmt.Sprint(qos), "-t", "props", "-m", "x", "-D", "publish", "content-type", "text/plain", "-D", "publish", "correlation-data", "cd",
			"-D", "publish", "payload-format-indicator", "1", "-D", "publish", "response-topic", "re/x",
			"-D", "publish", "user-property", "k", "1", "-D", "publish", "user-property", "k", "2")
		r.want("text/plain|cd|1|k:1 k:2|re/x|x")
	}
	m.pub(t, "-t", "props", "-m", "x", "-D", "publish", "topic-alias", "3")
	r.want("|||||x")
}

func (m mosquitto) testIdentifiers(t *testing.T) {
	r := m.sub(t, "ids", 1, "-q", "2", "-t", "ids/+", "-D", "subscribe", "subscription-identifier", "77", "-F", "%S %t")
	m.pub(t, "-q", "2", "-t", "ids/a", "-m", "x")
	r.want("77 ids/a")
}

func (m mosquitto) testMessageExpiry(t *testing.T) {
	m.start(t, "mosquitto_sub", m.kept("expiry", "-E")...).wantExit(0)
	m.pub(t, "-q", "1", "-t", "expiry", "-m", "short", "-D", "publish", "message-expiry-interval", "1")
	m.pub(t, "-q", "1", "-t", "expiry", "-m", "long", "-D", "publish", "message-expiry-interval", "1000")
	time.Sleep(1100 * time.Millisecond)
	r := m.start(t, "mosquitto_sub", m.kept("expiry", "-C", "1", "-F", "%E %p")...)
	line, err := r.lines.ReadString('\n')
	if left, payload, _ := strings.Cut(line, " "); err != nil || payload != "long\n" || left == "1000" || len(left) != 3 {
		t.Errorf("%q, %v", line, err)
	}
	r.wantExit(0)
}

func (m mosquitto) testSessionExpiry(t *testing.T) {
	brief := []string{"-c", "-i", "brief", "-q", "2", "-t", "brief", "-x", "1"}
	m.start(t, "mosquitto_sub", append(brief, "-E")...).wantExit(0)
	eventually(t, func() bool { return m.s.client("brief") == nil })
	m.pub(t, "-q", "2", "-t", "brief", "-m", "for nobody")
	r := m.sub(t, "brief", 1, brief[3:]...)
	m.pub(t, "-q", "2", "-t", "brief", "-m", "sentinel")
	r.want("sentinel")
}

func (m mosquitto) testReceiveMaximum(t *testing.T) {
	r := m.sub(t, "one", 1, "-q", "2", "-t", "one", "-D", "connect", "receive-maximum", "1")
	for i := range 5 {
		m.pub(t, "-q", "2", "-t", "one", "-m", fmt.Sprint(i))
	}
	r.want("0", "1", "2", "3", "4")
}

// Each message goes to one member of a group, and to everybody else.
func (m mosquitto) testShared(t *testing.T) {
	const n = 20
	members := []*running{
		m.sub(t, "member1", 1, "-q", "2", "-t", "$share/g/shared/+"), m.sub(t, "member2", 1, "-q", "2", "-t", "$share/g/shared/+"),
	}
	all := m.sub(t, "all", 1, "-q", "2", "-t", "shared/+")
	for i := range n {
		m.pub(t, "-q", "2", "-t", "shared/a", "-m", fmt.Sprint(i))
		all.want(fmt.Sprint(i))
	}
	got := make(chan string)
	for _, r := range members {
		go func() {
			for {
				line, err := r.lines.ReadString('\n')
				if err != nil {
					return
				}
				got <- line
			}
		}()
	}
	seen := map[string]bool{}
	for range n {
		select {
		case line := <-got:
			if seen[line] {
				t.Errorf("%q comes twice", line)
			}
			seen[line] = true
		case <-time.After(patience):
			t.Fatalf("%d of %d messages", len(seen), n)
		}
	}
}

// Over TLS, with passwords and with client certificates.
func TestMosquittoTLS(t *testing.T) {
	t.Parallel()
	var certFile string
	s, ca, urls := secured(t, files(t, "user alice allow both a/#\nuser carol allow both a/#\n", "alice"), func(c *Config) { certFile = c.Cert })
	caFile := filepath.Join(filepath.Dir(certFile), "ca.pem")
	carol := t.TempDir()
	carolCert, carolKey, _ := ca.Write(carol, "carol")
	secure, err := url.Parse(urls["ssl"])
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"mqttv311", "mqttv5"} {
		t.Run(version, func(t *testing.T) {
			m := newMosquitto(t, s, version)
			m.args[3] = secure.Port()
			trusting := append([]string{"--cafile", caFile}, "-q", "2", "-t", "a/x")
			alice := append([]string{"-u", "alice", "-P", "pw-alice"}, trusting...)
			r := m.sub(t, "alice", 1, alice...)
			m.pub(t, append(alice, "-m", "by password")...)
			r.want("by password")
			m.pub(t, append(trusting, "--cert", carolCert, "--key", carolKey, "-m", "by certificate")...)
			r.want("by certificate")
			for _, c := range []struct {
				why  string
				args []string
			}{
				{"a wrong password", append([]string{"-u", "alice", "-P", "x"}, trusting...)},
				{"no name", trusting},
				{"a CA that did not sign", append([]string{"-u", "alice", "-P", "pw-alice", "--cafile", carolCert}, trusting[2:]...)},
				{"no TLS", append([]string{"-u", "alice", "-P", "pw-alice"}, trusting[2:]...)},
			} {
				p := m.start(t, "mosquitto_pub", append(c.args, "-m", "x")...)
				p.ended = true
				_ = p.cmd.Wait()
				if code := p.cmd.ProcessState.ExitCode(); code <= 0 {
					t.Errorf("%s: exit code %d", c.why, code)
				}
			}
			m.pub(t, append(alice, "-m", "sentinel")...)
			r.want("sentinel")
		})
	}
}
