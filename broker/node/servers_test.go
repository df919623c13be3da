package node

import (
	"strings"
	"testing"
)

func TestServersValidate(t *testing.T) {
	for _, c := range []struct {
		reason string
		s      Servers
		want   []string // parts of the error; none: valid
	}{
		{"one", Servers{URLs: []string{"nats://127.0.0.1:4222"}}, nil},
		{"several, over TLS, with a certificate", Servers{URLs: []string{"tls://a:1", "tls://b:1/"}, CA: "ca", Cert: "c", Key: "k"}, nil},
		{"a user", Servers{URLs: []string{"nats://u:p@a:1", "nats://u:p@b:1"}}, nil},
		{"credentials", Servers{URLs: []string{"nats://a:1"}, Creds: "c"}, nil},
		{"no server", Servers{Creds: "c"}, []string{"no server", "--nats"}},
		{"no port", Servers{URLs: []string{"nats://a"}}, []string{`"nats://a"`, "HOST:PORT"}},
		{"no host", Servers{URLs: []string{"nats://:4222"}}, []string{"HOST:PORT"}},
		{"no scheme", Servers{URLs: []string{"a:4222"}}, []string{"HOST:PORT"}},
		{"another scheme", Servers{URLs: []string{"ws://a:4222"}}, []string{`"ws://a:4222"`}},
		{"a path", Servers{URLs: []string{"nats://a:4222/x"}}, []string{`"nats://a:4222/x"`}},
		{"no URL at all, and nothing of it is shown", Servers{URLs: []string{"nats://a:1", "nats://u:s3%zzcret@a:1"}}, []string{"server 2 of 2"}},
		{"a user twice", Servers{URLs: []string{"nats://u:p@a:1"}, Creds: "c", NKey: "n"}, []string{"--nats and --nats-creds and --nats-nkey", "one user"}},
		{"half a certificate", Servers{URLs: []string{"nats://a:1"}, Key: "k"}, []string{"--nats-cert and --nats-key"}},
		{"a password that was taken out", Servers{URLs: []string{"nats://u:xxxxx@a:1"}}, []string{"put it back"}},
		{"a token that was taken out", Servers{URLs: []string{"nats://xxxxx@a:1"}}, []string{"put it back"}},
	} {
		err := c.s.Validate()
		if (err == nil) != (len(c.want) == 0) {
			t.Errorf("%s: error %v, want %q", c.reason, err, c.want)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q does not say %q", c.reason, err, part)
			}
		}
		if err != nil && strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: error %q shows a password", c.reason, err)
		}
		if !c.s.Given() {
			t.Errorf("%s: it counts as nothing", c.reason)
		}
	}
	if (&Servers{}).Given() {
		t.Error("nothing counts as something")
	}
}

// No part of a password is ever shown, however badly its URL is written.
func TestRedact(t *testing.T) {
	for _, c := range []struct{ reason, text, want string }{
		{"nothing to hide", "nats://127.0.0.1:4222", "nats://127.0.0.1:4222"},
		{"a password", "nats://u:s3cret@h:1", "nats://u:xxxxx@h:1"},
		{"a token", "nats://s3cret@h:1", "nats://xxxxx@h:1"},
		{"an @ in it", "nats://u:s3@cret@h:1", "nats://u:xxxxx@h:1"},
		{"a slash in it", "nats://u:s3/cret@h:1", "nats://u:xxxxx@h:1"},
		{"a colon in it", "nats://u:s3:cret@h:1", "nats://u:xxxxx@h:1"},
		{"a comma in it", "nats://u:s3,cret@h:1", "nats://u:xxxxx@h:1"},
		{"in a sentence", `connect to "nats://u:s3cret@h:1" or nats://s3cret@h:2: no`, `connect to "nats://u:xxxxx@h:1" or nats://xxxxx@h:2: no`},
		{"no URL", "user@host", "user@host"},
	} {
		if got := Redact(c.text); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
	s := Servers{URLs: []string{"nats://u:s3cret@h:1", "nats://h:2"}}
	if got := s.String(); got != "nats://u:xxxxx@h:1,nats://h:2" {
		t.Errorf("String gives %q", got)
	}
}

func TestNewEnough(t *testing.T) {
	for version, ok := range map[string]bool{
		"2.9.25": false, "2.11.9": false, "2.12.4": false, "2.14.0": true, "1.4.1": false, "2.15.3": true, "2.99.0-dev": true, "v3.0.0": true, "3.0.0-RC.1": true, "": false, "devel": false,
	} {
		if err := newEnough(version); (err == nil) != ok {
			t.Errorf("version %q: %v", version, err)
		}
	}
}
