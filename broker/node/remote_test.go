package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"inflight/broker/internal/testcert"
	"inflight/broker/internal/testnats"
)

// wantRefused wants an error of one line with all the parts, soon.
func wantRefused(t *testing.T, s Servers, replicas int, parts ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err := Dial(ctx, s, replicas, nil)
	if err == nil {
		t.Errorf("accepted, want %q", parts)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error %q takes several lines or shows a password", err)
	}
}

func dialed(t *testing.T, s Servers, replicas int, log *slog.Logger) (*Remote, *nats.Conn) {
	t.Helper()
	r, err := Dial(starting(t), s, replicas, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	nc, err := r.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return r, nc
}

func TestDialRefused(t *testing.T) {
	t.Run("a configuration that is none", func(t *testing.T) {
		_, err := Dial(starting(t), Servers{URLs: []string{"x"}, Key: "k"}, 1, nil)
		if err == nil || !strings.Contains(err.Error(), "HOST:PORT") || !strings.Contains(err.Error(), "--nats-cert") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		wantRefused(t, Servers{URLs: []string{"nats://u:s3cret@" + freePort(t), "nats://" + freePort(t)}}, 1, "nobody listens for NATS at nats://u:xxxxx@", "start the NATS server")
	})
	t.Run("a host that does not exist", func(t *testing.T) {
		wantRefused(t, Servers{URLs: []string{"nats://nowhere.invalid:4222"}}, 1, "nowhere.invalid")
	})
	t.Run("no JetStream", func(t *testing.T) {
		o := testnats.Start(t, func(o *server.Options) { o.JetStream = false })
		wantRefused(t, Servers{URLs: []string{o.URL(nil)}}, 1, "the server has no JetStream", "nats-server -js")
	})
	t.Run("no JetStream for the account", func(t *testing.T) {
		o := testnats.Start(t, func(o *server.Options) {
			with, without := server.NewAccount("WITH"), server.NewAccount("WITHOUT")
			o.Accounts = []*server.Account{with, without}
			o.Users = []*server.User{{Username: "u", Password: "s3cret", Account: without}}
		})
		wantRefused(t, Servers{URLs: []string{o.URL(url.UserPassword("u", "s3cret"))}}, 1, "account")
	})
	for reason, c := range map[string]struct {
		publish, subscribe []string
		says               []string
	}{
		"no permission for the API":      {[]string{"inf.>", "$JS.ACK.>"}, []string{"inf.>"}, []string{`no permission for publish to "$JS.API.INFO", `, "and 7 more", "let it publish to inf.>, $JS.API.> and $JS.ACK.>"}},
		"no permission to subscribe":     {[]string{"inf.>", "$JS.>"}, []string{"_INBOX.>"}, []string{`no permission for subscription to "inf.`, "subscribe to inf.>"}},
		"no permission for deliveries":   {[]string{"inf.>", "$JS.>"}, []string{"inf.i.>", "inf.c.>", "inf.q.>"}, []string{`no permission for subscription to "inf.d.`}},
		"no permission for own subjects": {[]string{"$JS.>"}, []string{"inf.>"}, []string{`no permission for publish to "inf.c.`}},
	} {
		t.Run(reason, func(t *testing.T) {
			o := testnats.Start(t, func(o *server.Options) {
				o.Users = []*server.User{{Username: "u", Password: "s3cret", Permissions: &server.Permissions{
					Publish: &server.SubjectPermission{Allow: c.publish}, Subscribe: &server.SubjectPermission{Allow: c.subscribe},
				}}}
			})
			wantRefused(t, Servers{URLs: []string{o.URL(url.UserPassword("u", "s3cret"))}}, 1, c.says...)
		})
	}
	t.Run("files that are not there", func(t *testing.T) {
		o := testnats.Start(t)
		for _, s := range []Servers{{NKey: "no/file"}, {CA: "no/file"}, {Creds: "no/file"}, {Cert: "no/file", Key: "no/file"}} {
			s.URLs = []string{o.URL(nil)}
			wantRefused(t, s, 1, "no/file", "no such file")
		}
	})
	t.Run("a server of its own has no replicas", func(t *testing.T) {
		o := testnats.Start(t)
		wantRefused(t, Servers{URLs: []string{o.URL(nil)}}, 3, "3 replicas need as many servers", "--replicas 1")
	})
	t.Run("a certificate for another name", func(t *testing.T) {
		ca := testcert.New(t)
		cert, key, caFile := ca.Write(t.TempDir(), "server")
		o := testnats.Start(t, func(o *server.Options) {
			tc, err := server.GenTLSConfig(&server.TLSConfigOpts{CertFile: cert, KeyFile: key})
			if err != nil {
				t.Fatal(err)
			}
			o.Host, o.TLS, o.TLSConfig, o.TLSTimeout = "127.0.0.2", true, tc, 5
		})
		wantRefused(t, Servers{URLs: []string{fmt.Sprintf("nats://127.0.0.2:%d", o.Options.Port)}, CA: caFile}, 1, "certificate for another name")
	})
	t.Run("somebody who is no NATS server", func(t *testing.T) {
		o := testnats.Start(t, func(o *server.Options) { o.HTTPHost, o.HTTPPort = "127.0.0.1", testnats.Port(t) })
		wantRefused(t, Servers{URLs: []string{fmt.Sprintf("nats://127.0.0.1:%d", o.Options.HTTPPort)}}, 1, "NATS (")
	})
}

// A user of an operator's account, as a hosted NATS has them.
func TestCredentialsFile(t *testing.T) {
	operator, _ := nkeys.CreateOperator()
	account, _ := nkeys.CreateAccount()
	user, _ := nkeys.CreateUser()
	public := func(kp nkeys.KeyPair) string {
		p, err := kp.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	encoded := func(s string, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	system, _ := nkeys.CreateAccount()
	systemJWT := encoded(jwt.NewAccountClaims(public(system)).Encode(operator))
	op := jwt.NewOperatorClaims(public(operator))
	op.SystemAccount = public(system)
	encoded(op.Encode(operator))
	ac := jwt.NewAccountClaims(public(account))
	ac.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	accountJWT := encoded(ac.Encode(operator))
	seed, _ := user.Seed()
	creds, err := jwt.FormatUserConfig(encoded(jwt.NewUserClaims(public(user)).Encode(account)), seed)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "broker.creds")
	if err := os.WriteFile(file, creds, 0o600); err != nil {
		t.Fatal(err)
	}
	o := testnats.Start(t, func(o *server.Options) {
		accounts := &server.MemAccResolver{}
		if err := errors.Join(accounts.Store(public(account), accountJWT), accounts.Store(public(system), systemJWT)); err != nil {
			t.Fatal(err)
		}
		o.TrustedOperators, o.AccountResolver, o.SystemAccount = []*jwt.OperatorClaims{op}, accounts, public(system)
	})
	_, nc := dialed(t, Servers{URLs: []string{o.URL(nil)}, Creds: file}, 1, nil)
	if !nc.IsConnected() {
		t.Error("not connected")
	}
	wantRefused(t, Servers{URLs: []string{o.URL(nil)}}, 1, "refuses the credentials", "--nats-creds")
}

// A connection that is lost says so, comes back by itself, and brings nothing with it that was given up meanwhile.
func TestRemoteConnection(t *testing.T) {
	var buf syncBuffer
	o := testnats.Start(t)
	r, nc := dialed(t, Servers{URLs: []string{o.URL(nil)}}, 1, slog.New(slog.NewTextHandler(&buf, nil)))
	if r.MaxPayload() != 1<<20 {
		t.Errorf("it takes %d bytes, want a server's default", r.MaxPayload())
	}
	wantHealth := func(part string) {
		t.Helper()
		var err error
		for end := time.Now().Add(startUp); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if err = r.Healthy(); err == nil && part == "" || err != nil && part != "" && strings.Contains(err.Error(), part) {
				return
			}
		}
		t.Fatalf("it says %v, want %q", err, part)
	}
	wantHealth("the streams of this broker are gone")
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(starting(t), jetstream.StreamConfig{Name: "INF_x", Subjects: []string{"inf.x"}})
	if err != nil {
		t.Fatal(err)
	}
	wantHealth("")
	if down, lost := r.Down(time.Now()); down != 0 || lost != 0 {
		t.Errorf("lost %d times, for %v", lost, down)
	}

	o.Stop()
	wantHealth("no connection to NATS")
	down, lost := r.Down(time.Now().Add(time.Minute))
	if down < time.Minute || lost != 1 {
		t.Errorf("a minute later: lost %d times, for %v", lost, down)
	}
	if err := nc.Publish("inf.x", []byte("late")); !errors.Is(err, nats.ErrReconnectBufExceeded) {
		t.Errorf("publishing without a connection gives %v", err)
	}
	o.Start()
	wantHealth("")
	if down, lost := r.Down(time.Now()); down != 0 || lost != 1 {
		t.Errorf("afterwards: lost %d times, for %v", lost, down)
	}
	info, err := stream.Info(starting(t))
	if err != nil || info.State.Msgs != 0 {
		t.Errorf("%+v, %v: something came late", info, err)
	}
	for _, want := range []string{"NATS connection lost", "NATS connection is back", "connection=test"} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, buf.String())
		}
	}
	nc.Close()
	if err := r.Healthy(); err == nil {
		t.Error("healthy without any connection")
	}
}

func TestRemoteCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster of three; run without -short")
	}
	trio := testnats.Trio(t)
	s := Servers{URLs: testnats.URLs(trio)}
	r, nc := dialed(t, s, 3, nil)
	names, err := streams(starting(t), nc)
	if err != nil || len(names) != 0 {
		t.Errorf("the check leaves %q, %v", names, err)
	}
	if name := nc.ConnectedServerName(); !strings.HasPrefix(name, "s") {
		t.Errorf("connected to %q", name)
	}
	wantRefused(t, s, 5, "5 replicas")
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(starting(t), jetstream.StreamConfig{Name: "INF_x", Subjects: []string{"inf.x"}, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	dialed(t, s, 5, nil) // there are streams: whoever made them found the servers
	if err := r.Healthy(); err != nil {
		t.Errorf("it says %v", err)
	}

	// Two of three are gone: connections find the third, and nothing can be stored.
	for _, o := range trio {
		if o.Options.ServerName != nc.ConnectedServerName() {
			o.Stop()
		}
	}
	for end := time.Now().Add(startUp); ; time.Sleep(20 * time.Millisecond) {
		err := r.Healthy()
		if err != nil && (strings.Contains(err.Error(), "no answer") || strings.Contains(err.Error(), "unavailable")) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("without a majority it says %v", err)
		}
	}
	// The leader that was among the three serves on until it has noticed.
	for end := time.Now().Add(startUp); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		early, err := Dial(ctx, s, 3, nil)
		if cancel(); err != nil {
			break
		}
		early.Stop()
	}
	wantRefused(t, s, 3, "JetStream has no leader: a majority")
}
