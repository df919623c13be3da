package target

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"inflight/broker/packet"
)

// fakeEnv makes the test binary be one of the programs that the tests start, whichever its name and first argument say.
const fakeEnv = "INFLIGHT_TARGET_FAKE"

func TestMain(m *testing.M) {
	// The workers of a fuzz test are the test binary too, and are to be no fakes.
	if os.Getenv(fakeEnv) != "" && !(len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "-test.")) {
		os.Exit(fake(os.Args))
	}
	os.Setenv(fakeEnv, "1")
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or each program would take a second to end under the race detector
	code := m.Run()
	for deadline := time.Now().Add(time.Minute); code == 0 && leaked() != ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			fmt.Fprintf(os.Stderr, "a goroutine of this package is left:\n%s\n", leaked())
			code = 1
		}
	}
	os.Exit(code)
}

// leaked is the stack of a goroutine in this package's code other than the one that calls it, "" when there is none.
func leaked() string {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	_, others, _ := strings.Cut(string(all), "\n\n")
	for stack := range strings.SplitSeq(others, "\n\n") {
		if strings.Contains(stack, "inflight/runner/target.") {
			return stack
		}
	}
	return ""
}

// fakeKind describes a broker that the test binary plays; mode is what is wrong with it.
const fakeKind = `
kind: fake
summary: played by the test binary
source: { self: true }
delivers: true
parameters:
  mode:
    type: choice
    values: [well, dies, silent, refuses, stubborn, parent, taken, once, mute, sick]
    default: well
  port: { type: int, min: 1, max: 65535 }
  nodes: { type: int, min: 1, max: 9 }
  replicas: { type: int, min: 1, max: 5 }
durability:
  - is: file
ports: [mqtt, health]
peers: health
health: 'http://{{addr .Node "health"}}/healthz'
files:
  fake.conf: |
    node {{.Name}} of {{len .Nodes}}
    {{- range .Nodes}} {{peer . "health"}}{{end}}
args:
  - broker
  - --mode={{.Params.mode}}
  - --listen={{addr .Node "mqtt"}}
  - --health={{addr .Node "health"}}
  - --config={{file "fake.conf"}}
version: { args: [version], pattern: 'fake (\S+)' }
`

// fakes is the catalog with that kind only.
func fakes() catalog {
	return catalog{names: []string{"fake"}, read: func(name string) ([]byte, bool) { return []byte(fakeKind), name == "fake" }}
}

func fake(args []string) int {
	if strings.TrimSuffix(filepath.Base(args[0]), ".exe") == "go" {
		return fakeGo(args[1:])
	}
	if len(args) < 2 {
		return 2
	}
	switch args[1] {
	case "version":
		fmt.Println("fake v1.2.3")
	case "-version":
		fmt.Println("mochi v2.7.9")
	case "--version":
		fmt.Println("nats-server: v2.15.3")
	case "harness":
		return fakeHarness(args[2:])
	case "sleep":
		signal.Ignore(syscall.SIGTERM, os.Interrupt)
		time.Sleep(time.Hour)
	case "broker":
		flags := map[string]string{}
		for _, a := range args[2:] {
			name, value, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
			flags[name] = value
		}
		return fakeBroker(flags)
	}
	return 0
}

func fakeBroker(flags map[string]string) int {
	mode := flags["mode"]
	config, err := os.ReadFile(flags["config"])
	if err != nil {
		fmt.Println(err)
		return 2
	}
	fmt.Printf("%s", config)
	switch mode {
	case "dies":
		for i := range 20 {
			fmt.Printf("line %d\n", i)
		}
		fmt.Println("fatal: no luck")
		return 3
	case "once":
		// As if another program had got the port, the first time only.
		if marks, _ := filepath.Glob(os.Getenv("FAKE_MARKS") + "/*"); len(marks) == 0 {
			os.WriteFile(filepath.Join(os.Getenv("FAKE_MARKS"), "mark"), nil, 0o666)
			fmt.Println("listen tcp: bind: address already in use")
			return 1
		}
	case "taken":
		fmt.Println("listen tcp: bind: address already in use")
		return 1
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "parent":
		child := exec.Command(os.Args[0], "sleep")
		if err := child.Start(); err != nil {
			return 2
		}
		fmt.Printf("child %d\n", child.Process.Pid)
	}
	var asked atomic.Int64
	go http.ListenAndServe(flags["health"], http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 || mode == "sick" { // nobody is well at once
			http.Error(w, "no leader", http.StatusServiceUnavailable)
		}
	}))
	l, err := net.Listen("tcp", flags["listen"])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	b := &fakeServer{mode: mode, subscribers: map[string]io.Writer{}}
	for {
		conn, err := l.Accept()
		if err != nil {
			return 1
		}
		go b.serve(conn)
	}
}

// fakeServer is a broker of exact topics for one subscriber each.
type fakeServer struct {
	mode        string
	mu          sync.Mutex
	subscribers map[string]io.Writer
}

func (b *fakeServer) serve(conn net.Conn) {
	defer conn.Close()
	r := packet.NewReader(conn, 512, 1<<16)
	for {
		f, err := r.Next()
		if err != nil || b.mode == "silent" {
			time.Sleep(time.Second)
			return
		}
		id, _ := packet.ParseAck(f)
		var answer []byte
		switch f.Type() {
		case packet.CONNECT:
			code := packet.Accepted
			if b.mode == "refuses" {
				code = packet.RefusedUnauthorized
			}
			answer = packet.AppendConnack(nil, false, code)
		case packet.SUBSCRIBE:
			s, _ := packet.ParseSubscribe(f)
			b.mu.Lock()
			b.subscribers[s.Subscriptions[0].Filter] = conn
			b.mu.Unlock()
			answer = packet.AppendSuback(nil, s.ID, []byte{2})
		case packet.PUBLISH:
			m, _ := packet.ParsePublish(f)
			answer = packet.AppendAck(nil, packet.PUBREC, m.ID)
			b.mu.Lock()
			if s := b.subscribers[string(m.Topic)]; s != nil && b.mode != "mute" {
				s.Write(packet.AppendPublish(nil, &packet.Publish{Topic: m.Topic, Payload: m.Payload, ID: 7, QoS: 2}))
			}
			b.mu.Unlock()
		case packet.PUBREL:
			answer = packet.AppendAck(nil, packet.PUBCOMP, id)
		case packet.PUBREC:
			answer = packet.AppendAck(nil, packet.PUBREL, id)
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// fakeGo is a go command whose install and build make a copy of the test binary. It complains about what must not reach it.
func fakeGo(args []string) int {
	if len(args) == 5 && args[0] == "build" {
		return fakeGoBuild(args)
	}
	if len(args) != 2 || args[0] != "install" {
		fmt.Println("unexpected arguments:", args)
		return 2
	}
	if f := os.Getenv("GOFLAGS"); strings.Contains(f, "-mod") {
		fmt.Println("GOFLAGS leaked:", f)
		return 2
	}
	for dir, _ := os.Getwd(); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			fmt.Println("inside a module:", dir)
			return 2
		}
	}
	if strings.HasSuffix(args[1], "@v2.99.0") {
		fmt.Println("go: github.com/nats-io/nats-server/v2@v2.99.0: invalid version: unknown revision v2.99.0")
		return 1
	}
	time.Sleep(50 * time.Millisecond) // so that concurrent builds overlap
	return fakeBuilt(filepath.Join(os.Getenv("GOBIN"), "nats-server"), args[1])
}

// fakeGoBuild builds in a module that requires one version.
func fakeGoBuild(args []string) int {
	mod, err := os.ReadFile("go.mod")
	_, required, ok := strings.Cut(string(mod), "require ")
	source, err2 := os.ReadFile(args[4])
	if err != nil || err2 != nil || !ok || !strings.Contains(string(source), "package main") || args[1] != "-mod=mod" || args[2] != "-o" {
		fmt.Println("unexpected build:", args, string(mod), err, err2)
		return 2
	}
	return fakeBuilt(args[3], strings.TrimSpace(required))
}

// fakeBuilt puts a copy of the test binary in place and keeps what was built.
func fakeBuilt(path, what string) int {
	self, err := os.Executable()
	if err != nil {
		return 2
	}
	binary, err := os.ReadFile(self)
	if err != nil {
		return 2
	}
	if err := os.WriteFile(path, binary, 0o755); err != nil {
		fmt.Println(err)
		return 1
	}
	log, err := os.OpenFile(filepath.Join(os.Getenv("FAKE_MARKS"), "builds"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return 2
	}
	defer log.Close()
	fmt.Fprintln(log, what)
	return 0
}

// fakeHarness starts a broker, says which processes it has and waits to be killed.
func fakeHarness(args []string) int {
	spec, err := fakes().parse("fake")
	if err != nil {
		return 2
	}
	p, err := Prepare(context.Background(), spec, Options{Self: os.Args[0], LogDir: args[0]})
	if err != nil {
		return 2
	}
	for i := range 2 {
		b, err := p.Start(context.Background(), Slot{Number: i + 1, Dir: args[0]}, 1, 0)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(b.pids()[0])
	}
	time.Sleep(time.Hour)
	return 0
}

func (b *Broker) pids() (pids []int) {
	for _, p := range b.processes {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}

// lines reads whole lines of a pipe until it closes.
func lines(r io.Reader) <-chan string {
	c := make(chan string, 64)
	go func() {
		defer close(c)
		for s := bufio.NewScanner(r); s.Scan(); {
			c <- s.Text()
		}
	}()
	return c
}
