package broker

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inflight/broker/packet"
)

// mqttjs is MQTT.js in a process of its own; testdata/mqttjs has the driver.
type mqttjs struct {
	t      *testing.T
	in     io.Writer
	events map[string]chan event
}

// event is what the driver tells; which fields are set depends on the event.
type event struct {
	Event   string
	Present bool
	Topic   string
	Payload string
	QoS     int
	Retain  bool
	Granted []int
	Error   string
	Code    any

	Properties map[string]any
}

type options = map[string]any

// startMQTTjs starts the driver.
func startMQTTjs(t *testing.T) *mqttjs {
	t.Helper()
	const install = "see testdata/mqttjs/README.txt"
	program := tool(t, "node", install)
	dir := os.Getenv("INFLIGHT_MQTTJS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(cache, "inflight", "mqttjs")
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "mqtt", "package.json")); err != nil {
		missing(t, fmt.Sprintf("no MQTT.js in %s: %s", dir, install))
	}
	cmd := exec.CommandContext(t.Context(), program, "../testdata/mqttjs/driver.mjs", dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j := &mqttjs{t: t, in: in, events: map[string]chan event{}}
	for _, name := range []string{"connect", "message", "disconnect", "error", "close", "subscribed", "unsubscribed", "published", "end"} {
		j.events[name] = make(chan event, 10_000)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Errorf("%s: %v", lines.Text(), err)
				return
			}
			j.events[e.Event] <- e
		}
	}()
	t.Cleanup(func() {
		_ = in.Close() // which ends the driver
		<-ended
		_ = cmd.Wait()
	})
	return j
}

// do gives a command.
func (j *mqttjs) do(command string, fields options) {
	j.t.Helper()
	all := options{"command": command}
	for k, v := range fields {
		all[k] = v
	}
	line, err := json.Marshal(all)
	if err != nil {
		j.t.Fatal(err)
	}
	if _, err := j.in.Write(append(line, '\n')); err != nil {
		j.t.Fatal(err)
	}
}

// want waits for an event; those of other names may come before.
func (j *mqttjs) want(name string) event {
	j.t.Helper()
	select {
	case e := <-j.events[name]:
		return e
	case <-time.After(2 * patience):
		j.t.Fatalf("want %s, errors: %v", name, drain(j.events["error"]))
		return event{}
	}
}

func drain(ch chan event) (all []event) {
	for {
		select {
		case e := <-ch:
			all = append(all, e)
		default:
			return all
		}
	}
}

// wantMessage wants a message; the sentence is as of a peer.
func (j *mqttjs) wantMessage(sentence string) event {
	j.t.Helper()
	e := j.want("message")
	got := fmt.Sprintf("q%d %s %q", e.QoS, e.Topic, e.Payload)
	if e.Retain {
		got += " retain"
	}
	if got != sentence {
		j.t.Fatalf("want %s, got %s", sentence, got)
	}
	return e
}

func (j *mqttjs) publish(qos int, topic, payload string, more options) {
	j.t.Helper()
	opts := options{"qos": qos}
	for k, v := range more {
		opts[k] = v
	}
	j.do("publish", options{"topic": topic, "payload": payload, "options": opts})
}

func (j *mqttjs) wantPublished() {
	j.t.Helper()
	if e := j.want("published"); e.Error != "" {
		j.t.Fatalf("publish: %s", e.Error)
	}
}

// wantAllPublished waits until n messages to a topic are published at QoS 2, over a connection that is cut.
func (j *mqttjs) wantAllPublished(n int, topic string) {
	j.t.Helper()
	for done := 0; done < n; {
		e := j.want("published")
		switch e.Error {
		case "", "Publish error: Packet Identifier not found": // it was over when the connection ended
			done++
		case "Connection closed": // before it was sent, or kept
			j.publish(2, topic, e.Payload, nil)
		default:
			j.t.Fatal(e.Error)
		}
	}
}

func (j *mqttjs) subscribe(filter string, opts options) {
	j.t.Helper()
	j.do("subscribe", options{"topic": filter, "options": opts})
	if e := j.want("subscribed"); e.Error != "" || len(e.Granted) != 1 || e.Granted[0] != opts["qos"] {
		j.t.Fatalf("subscribe: %+v", e)
	}
}

func (j *mqttjs) end() {
	j.t.Helper()
	j.do("end", nil)
	j.want("end")
}

// jsListener is how one client reaches the broker.
type jsListener struct {
	s       *Server
	url, ca string
	version int // the protocol level
	js      *mqttjs
}

// client is MQTT.js without a connection, for one test; tests take turns.
func (l jsListener) client(t *testing.T) *mqttjs {
	t.Helper()
	for _, ch := range l.js.events {
		drain(ch)
	}
	l.js.t = t
	return l.js
}

// jsOptions are the options of a client that does not reconnect by itself.
func (l jsListener) options(id string, more options) options {
	o := options{
		"clientId": id, "protocolVersion": l.version, "username": "alice", "password": "pw-alice", "reconnectPeriod": 0, "connectTimeout": 20_000,
	}
	for k, v := range more {
		o[k] = v
	}
	return o
}

func (l jsListener) connect(j *mqttjs, id string, present bool, more options) {
	j.t.Helper()
	j.do("connect", options{"url": l.url, "caFile": l.ca, "options": l.options(id, more)})
	if e := j.want("connect"); e.Present != present {
		j.t.Fatalf("session present: %v, want %v", e.Present, present)
	}
}

// own is a Client Identifier that no other listener's client has: they share a broker.
func (l jsListener) own(name string) string {
	scheme, _, _ := strings.Cut(l.url, ":")
	return fmt.Sprint(name, "-", scheme, "-", l.version)
}

// kept asks for a session that is kept.
func (l jsListener) kept(more options) options {
	o := options{"clean": false}
	if l.version == packet.Level5 {
		o["properties"] = options{"sessionExpiryInterval": 600}
	}
	for k, v := range more {
		o[k] = v
	}
	return o
}

// peer is a wire peer of a broker that wants a name and a password.
func (l jsListener) peer(t *testing.T, id string) *peer {
	t.Helper()
	p := as(t, l.s, "alice", id)
	p.want("CONNACK present=false code=0")
	return p
}

// TestMQTTjs is what MQTT.js makes of the broker, over each kind of listener and in both versions.
func TestMQTTjs(t *testing.T) {
	t.Parallel()
	var cert string
	s, _, urls := secured(t, files(t, "", "alice"), func(c *Config) { cert = c.Cert })
	for _, scheme := range []string{"tcp", "ssl", "ws", "wss"} {
		for _, version := range []int{packet.Level311, packet.Level5} {
			l := jsListener{s: s, url: urls[scheme], version: version}
			if scheme == "ssl" || scheme == "wss" {
				l.ca = filepath.Join(filepath.Dir(cert), "ca.pem")
			}
			l.url = strings.NewReplacer("tcp:", "mqtt:", "ssl:", "mqtts:").Replace(l.url)
			t.Run(fmt.Sprint(scheme, " ", version), func(t *testing.T) {
				l.js = startMQTTjs(t)
				t.Run("exchange", l.testExchange)
				t.Run("retained", l.testRetained)
				t.Run("will", l.testWill)
				t.Run("kept session", l.testKept)
				if scheme == "tcp" || scheme == "wss" {
					t.Run("a publisher that is cut", l.testPublisherCuts)
					t.Run("a subscriber that is cut", l.testSubscriberCuts)
				}
				t.Run("refused", l.testRefused)
				if version == packet.Level5 {
					t.Run("properties", l.testProperties)
					t.Run("topic aliases", l.testTopicAliases)
				}
			})
		}
	}
}

func (l jsListener) testExchange(t *testing.T) {
	j := l.client(t)
	l.connect(j, "js", false, nil)
	j.subscribe("a/+", options{"qos": 2})
	long := strings.Repeat("0123456789abcdef", 1<<14)
	for qos := range 3 {
		for _, payload := range []string{"x", "", long} {
			j.publish(qos, "a/b", payload, nil)
			j.wantPublished()
			j.wantMessage(fmt.Sprintf("q%d a/b %q", qos, payload))
		}
	}
	const n = 1000 // without waiting for any
	for i := range n {
		j.publish(2, "a/many", fmt.Sprint(i), nil)
	}
	for i := range n {
		j.wantPublished()
		j.wantMessage(fmt.Sprintf("q2 a/many %q", fmt.Sprint(i)))
	}
	j.do("unsubscribe", options{"topic": "a/+"})
	if e := j.want("unsubscribed"); e.Error != "" {
		t.Error(e.Error)
	}
	j.subscribe("b", options{"qos": 0})
	j.publish(2, "a/b", "not any more", nil)
	j.publish(2, "b", "sentinel", nil)
	j.wantMessage(`q0 b "sentinel"`)
	j.end()
}

func (l jsListener) testRetained(t *testing.T) {
	j := l.client(t)
	l.connect(j, "js", false, nil)
	j.publish(1, "ret", "x", options{"retain": true})
	j.wantPublished()
	j.subscribe("ret", options{"qos": 2})
	j.wantMessage(`q1 ret "x" retain`)
	j.publish(2, "ret", "", options{"retain": true})
	j.wantPublished()
	j.wantMessage(`q2 ret ""`)
	j.subscribe("ret", options{"qos": 2})
	j.publish(1, "ret", "sentinel", nil)
	j.wantMessage(`q1 ret "sentinel"`)
	j.end()
}

func (l jsListener) testWill(t *testing.T) {
	w := l.peer(t, "mourner")
	w.subscribe("will", 2)
	will := options{"will": options{"topic": "will", "payload": "gone", "qos": 2}}
	j := l.client(t)
	l.connect(j, "js-will", false, will)
	j.do("cut", nil)
	w.take(`PUBLISH q2 will "gone"`)
	l.connect(j, "js-will", false, will)
	j.end()
	p := l.peer(t, "p")
	p.send(pub(1, 1, "will", "sentinel"))
	p.want("PUBACK 1")
	w.want(`PUBLISH q1 will "sentinel"`)
}

func (l jsListener) testKept(t *testing.T) {
	j, p, id := l.client(t), l.peer(t, "p"), l.own("js-kept")
	for round := range 3 {
		l.connect(j, id, round > 0, l.kept(nil))
		if round == 0 {
			j.subscribe("kept", options{"qos": 2})
		}
		for i := range 20 * min(round, 1) {
			j.wantMessage(fmt.Sprintf("q2 kept %q", fmt.Sprint(round, i)))
		}
		if round == 1 {
			j.do("cut", nil)
			j.want("close")
		} else {
			j.end()
		}
		away(t, l.s, id)
		for i := range 20 {
			p.send(pub(uint16(i+1), 2, "kept", fmt.Sprint(round+1, i)), ack(packet.PUBREL, uint16(i+1)))
			p.want(fmt.Sprint("PUBREC ", i+1), fmt.Sprint("PUBCOMP ", i+1))
		}
	}
	l.connect(j, id, false, options{"clean": true})
	j.end()
	away(t, l.s, id)
}

// mostCuts bounds the cuts of one client: on a busy machine a connection may be cut before it got anywhere, each time.
const mostCuts = 100

// severs cuts a client's network connection in random intervals until stop is closed or it has had enough.
func (l jsListener) severs(id string, rng *rand.Rand, stop <-chan struct{}) (cuts int) {
	for cuts < mostCuts {
		select {
		case <-stop:
			return cuts
		case <-time.After(time.Duration(10+rng.IntN(60)) * time.Millisecond):
		}
		cl := l.s.client(id)
		if cl == nil {
			continue
		}
		cl.mu.Lock()
		if cl.conn != nil {
			_ = cl.conn.nc.Close()
			cuts++
		}
		cl.mu.Unlock()
	}
	return cuts
}

// MQTT.js sends again what is not acknowledged, and connects again by itself: the broker makes exactly once of it.
func (l jsListener) testPublisherCuts(t *testing.T) {
	const n = 200
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := l.peer(t, "w")
	w.subscribe("cut", 2)
	j := l.client(t)
	id := l.own("js-publisher")
	l.connect(j, id, false, l.kept(options{"reconnectPeriod": 5}))
	stop, cuts := make(chan struct{}), make(chan int, 1)
	go func() { cuts <- l.severs(id, rand.New(rand.NewPCG(seed, 0)), stop) }()
	seen := map[string]int{}
	for i := range n {
		j.publish(2, "cut", fmt.Sprint(i), nil)
		time.Sleep(time.Millisecond)
	}
	j.wantAllPublished(n, "cut")
	close(stop)
	t.Logf("%d cuts", <-cuts)
	// Of a client that is just connecting MQTT.js says that it has ended, and its CONNECT comes later: so it must be connected.
	j.publish(2, "last", "", nil)
	j.wantAllPublished(1, "last")
	// Everything is published: the sentinel is behind all of it.
	o := l.peer(t, "o")
	o.send(pub(1, 2, "cut", "sentinel"), ack(packet.PUBREL, 1))
	o.want("PUBREC 1", "PUBCOMP 1")
	for seen["sentinel"] == 0 {
		f, err := w.next()
		if err != nil {
			t.Fatal(err)
		}
		switch f.Type() {
		case packet.PUBLISH:
			m, _ := packet.ParsePublish(f)
			seen[string(m.Payload)]++
			w.send(ack(packet.PUBREC, m.ID))
		case packet.PUBREL:
			id, _ := packet.ParseAck(f)
			w.send(ack(packet.PUBCOMP, id))
		}
	}
	for i := range n {
		if seen[fmt.Sprint(i)] != 1 {
			t.Errorf("message %d: %d times", i, seen[fmt.Sprint(i)])
		}
	}
	j.end()
	l.forget(t, id)
}

// forget ends a kept session.
func (l jsListener) forget(t *testing.T, id string) {
	t.Helper()
	away(t, l.s, id)
	l.peer(t, id).cut()
	eventually(t, func() bool { return l.s.client(id) == nil })
}

// What MQTT.js receives at QoS 2 comes once, however often its connection is cut.
func (l jsListener) testSubscriberCuts(t *testing.T) {
	const n = 200
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	j := l.client(t)
	id := l.own("js-subscriber")
	l.connect(j, id, false, l.kept(options{"reconnectPeriod": 5}))
	j.subscribe("cut", options{"qos": 2})
	stop, cuts := make(chan struct{}), make(chan int, 1)
	go func() { cuts <- l.severs(id, rand.New(rand.NewPCG(seed, 0)), stop) }()
	p := l.peer(t, "p")
	for i := range n {
		n := uint16(i + 1)
		p.send(pub(n, 2, "cut", fmt.Sprint(i)), ack(packet.PUBREL, n))
		p.want(fmt.Sprint("PUBREC ", n), fmt.Sprint("PUBCOMP ", n))
		time.Sleep(time.Millisecond)
	}
	for i := range n {
		j.wantMessage(fmt.Sprintf("q2 cut %q", fmt.Sprint(i)))
	}
	close(stop)
	t.Logf("%d cuts", <-cuts)
	p.send(pub(1, 1, "cut", "sentinel"))
	j.wantMessage(`q1 cut "sentinel"`)
	j.end()
	l.forget(t, id)
}

func (l jsListener) testRefused(t *testing.T) {
	j := l.client(t)
	j.do("connect", options{"url": l.url, "caFile": l.ca, "options": l.options("js", options{"password": "wrong"})})
	want := map[int]float64{packet.Level311: float64(packet.RefusedCredentials), packet.Level5: float64(packet.BadUserNameOrPassword)}[l.version]
	if e := j.want("error"); e.Code != want {
		t.Errorf("refused with %v, want %v: %s", e.Code, want, e.Error)
	}
}

func (l jsListener) testProperties(t *testing.T) {
	j := l.client(t)
	l.connect(j, "js", false, options{"autoAssignTopicAlias": true})
	j.subscribe("p/+", options{"qos": 2, "properties": options{"subscriptionIdentifier": 99}})
	for qos := range 3 {
		j.publish(qos, "p/a", "x", options{"properties": options{
			"payloadFormatIndicator": true, "messageExpiryInterval": 100, "responseTopic": "re/x", "correlationData": "cd", "contentType": "text/plain",
			"userProperties": options{"k": []string{"1", "2"}},
		}})
		j.wantPublished()
		e := j.wantMessage(fmt.Sprintf(`q%d p/a "x"`, qos))
		left, _ := e.Properties["messageExpiryInterval"].(float64)
		delete(e.Properties, "messageExpiryInterval")
		got, _ := json.Marshal(e.Properties)
		want := `{"contentType":"text/plain","correlationData":"cd","payloadFormatIndicator":true,"responseTopic":"re/x",` +
			`"subscriptionIdentifier":99,"userProperties":{"k":["1","2"]}}`
		if string(got) != want || left < 1 || left > 100 {
			t.Errorf("QoS %d: %s, %v s left", qos, got, left)
		}
	}
	// The broker's word when it closes the connection.
	cl := l.s.client("js")
	cl.kick(errTakenOver)
	if e := j.want("disconnect"); e.Code != float64(packet.SessionTakenOver) {
		t.Errorf("DISCONNECT with %v", e.Code)
	}
}

// MQTT.js forgets what a Topic Alias stands for while it waits for a PUBREL, and tells of an empty topic at QoS 2; so this
// is about the others.
func (l jsListener) testTopicAliases(t *testing.T) {
	j := l.client(t)
	l.connect(j, "js-alias", false, options{"autoAssignTopicAlias": true, "properties": options{"topicAliasMaximum": 2}})
	j.subscribe("alias/+", options{"qos": 1})
	for i := range 5 {
		for _, topic := range []string{"alias/a", "alias/b", "alias/c"} {
			j.publish(i%2, topic, fmt.Sprint(i), nil)
			j.wantPublished()
			j.wantMessage(fmt.Sprintf("q%d %s %q", i%2, topic, fmt.Sprint(i)))
		}
	}
	j.end()
}
