package auth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/bcrypt"
	"pgregory.net/rapid"

	"inflight/broker/topic"
)

// cheap hashes a password as fast as bcrypt can.
func cheap(t testing.TB, password string) string {
	t.Helper()
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(h)
}

const someHash = "$2a$10$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234"

func TestParsePasswords(t *testing.T) {
	for _, c := range []struct {
		why, file string
		users     string
		err       string
	}{
		{"nothing", "", "", ""},
		{"comments and empty lines", "# users\n\n  \na:" + someHash + "\n", "a", ""},
		{"no newline at the end", "a:" + someHash, "a", ""},
		{"line ends of Windows", "a:" + someHash + "\r\nb:" + someHash + "\r\n", "a b", ""},
		{"a colon in the name", "a:b:" + someHash, "a:b", ""},
		{"htpasswd's mark", "a:$2y$" + someHash[4:], "a", ""},
		{"a plain password", "# x\na:secret\n", "", `f:2: the hash of user "a" is not of bcrypt`},
		{"no colon", "alice\n", "", "f:1: want user:hash"},
		{"no name", ":" + someHash, "", "f:1: the user name is empty"},
		{"twice", "a:" + someHash + "\nb:" + someHash + "\na:" + someHash, "", `f:3: user "a" is already on line 1`},
		{"a cut hash", "a:" + someHash[:59], "", "f:1: the hash"},
		{"the broken variant", "a:$2x$" + someHash[4:], "", "f:1: the hash"},
		{"a cost of days", "a:$2a$31$" + someHash[7:], "", "f:1: the hash of user \"a\" has cost 31"},
		{"a blank after the hash", "a:" + someHash + " ", "", "f:1: the hash"},
		{"a control character", "a\x01:" + someHash, "", "f:1: user name"},
		{"not UTF-8", "a\xff:" + someHash, "", "f:1: user name"},
	} {
		p, err := ParsePasswords("f", []byte(c.file))
		switch {
		case c.err == "" && err != nil:
			t.Errorf("%s: %v", c.why, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, want %q", c.why, err, c.err)
		case c.err == "":
			want := strings.Fields(c.users)
			if len(p.hashes) != len(want) {
				t.Errorf("%s: %d users, want %q", c.why, len(p.hashes), want)
			}
			for _, u := range want {
				if !has(p, u) {
					t.Errorf("%s: no %q", c.why, u)
				}
			}
		}
	}
}

func TestSetAndRemoveUser(t *testing.T) {
	other := "$2a$11$" + someHash[7:]
	const file = "# ours\na:" + someHash + "\n\nb:" + someHash // no newline at the end
	for _, c := range []struct {
		why, user string
		remove    bool
		want      string
		new       bool
	}{
		{"changed in place", "a", false, "# ours\na:" + other + "\n\nb:" + someHash, false},
		{"changed at the end", "b", false, "# ours\na:" + someHash + "\n\nb:" + other + "\n", false},
		{"added", "c", false, file + "\nc:" + other + "\n", true},
		{"removed", "a", true, "# ours\n\nb:" + someHash, true},
		{"not there", "c", true, file, false},
	} {
		var got []byte
		var flag bool
		var err error
		if c.remove {
			got, flag, err = RemoveUser("f", []byte(file), c.user)
		} else {
			got, flag, err = SetUser("f", []byte(file), c.user, other)
		}
		if err != nil || string(got) != c.want || flag != c.new {
			t.Errorf("%s: %q, %v, %v, want %q, %v", c.why, got, flag, err, c.want, c.new)
		}
	}
	if _, _, err := SetUser("f", []byte("broken\n"), "a", other); err == nil {
		t.Error("a file with an error was edited")
	}
	for _, user := range []string{"", "#a", "a\nb", " ", "\xff"} {
		if _, _, err := SetUser("f", nil, user, other); err == nil {
			t.Errorf("user %q was written", user)
		}
	}
}

func TestHashPassword(t *testing.T) {
	for _, c := range []struct {
		why, password string
		ok            bool
	}{
		{"empty", "", false},
		{"short", "x", true},
		{"as long as bcrypt takes", strings.Repeat("x", 72), true},
		{"longer", strings.Repeat("x", 73), false},
	} {
		h, err := HashPassword([]byte(c.password))
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.why, err)
		}
		if c.ok {
			if _, err := ParsePasswords("f", []byte("a:"+h)); err != nil {
				t.Errorf("%s: %v", c.why, err)
			}
		}
	}
}

func TestParseACL(t *testing.T) {
	for _, c := range []struct {
		why, file string
		rules     int
		err       string
	}{
		{"nothing", "\n# x\n   # y\n", 0, ""},
		{"every form of WHO", "everyone deny both a\nanonymous allow publish a\nuser x allow subscribe a\nclient y allow both a\n" +
			"user x client y allow both a\nclient y user x allow both a\n", 6, ""},
		{"a quoted filter", `everyone allow both "a b/#"`, 1, ""},
		{"a quoted pattern", "user \"a \\\"b\\\"\" allow both a", 1, ""},
		{"placeholders", "everyone allow both %u/%c/%%/x-%u", 1, ""},
		{"tabs", "everyone\tallow\tboth\ta\n", 1, ""},
		{"unknown WHO", "alice allow both a", 0, `f:1: "alice" is neither user, client, anonymous nor everyone`},
		{"unknown verdict", "everyone permit both a", 0, `"permit" is neither allow nor deny`},
		{"unknown right", "everyone allow write a", 0, `"write" is neither publish, subscribe nor both`},
		{"no filter", "everyone allow both", 0, "want WHO allow|deny"},
		{"too much", "everyone allow both a b", 0, "double quotes"},
		{"an invalid filter", "everyone allow both a/#/b", 0, "MQTT-4.7.1-2"},
		{"an empty filter", `everyone allow both ""`, 0, "MQTT-4.7.3-1"},
		{"a wildcard beside a placeholder", "everyone allow both +%u", 0, "MQTT-4.7.1-3"},
		{"an unknown placeholder", "everyone allow both %x", 0, "after '%' want u, c"},
		{"a shared filter", "everyone allow both $share/g/a", 0, "judged by the filter"},
		{"user twice", "user a user b allow both a", 0, "user twice"},
		{"user without a pattern", "user", 0, "user without a pattern"},
		{"an empty pattern", `user "" allow both a`, 0, "empty user pattern"},
		{"a string without an end", `everyone allow both "a`, 0, "does not end"},
		{"glued to a string", `everyone allow both "a"b`, 0, "want a blank"},
		{"not UTF-8", "everyone allow both \xff", 0, "not valid UTF-8"},
		{"every problem at once", "x\n\ny\n", 0, "f:3: "},
	} {
		a, err := ParseACL("f", []byte(c.file))
		switch {
		case c.err == "" && err != nil:
			t.Errorf("%s: %v", c.why, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, want %q", c.why, err, c.err)
		case c.err == "" && len(a.rules) != c.rules:
			t.Errorf("%s: %d rules, want %d", c.why, len(a.rules), c.rules)
		}
	}
}

func TestDecisions(t *testing.T) {
	alice, bob, nobody := Identity{"alice", "a-1"}, Identity{"bob", "b-1"}, Identity{"", "x"}
	for _, c := range []struct {
		why, acl string
		who      Identity
		what     string // pub or sub
		topic    string
		want     bool
	}{
		{"no rule decides", "", alice, "pub", "a", false},
		{"a user's rule", "user alice allow both a/#", alice, "pub", "a/b", true},
		{"is not another's", "user alice allow both a/#", bob, "pub", "a/b", false},
		{"a rule to publish", "user alice allow publish a", alice, "sub", "a", false},
		{"a rule to subscribe", "user alice allow subscribe a", alice, "pub", "a", false},
		{"the first rule wins", "everyone deny publish a/x\neveryone allow publish a/#", alice, "pub", "a/x", false},
		{"so an exception goes first", "everyone allow publish a/x\neveryone deny publish a/#", alice, "pub", "a/x", true},
		{"user * is everybody with a name", "user * allow both a", bob, "pub", "a", true},
		{"and nobody without", "user * allow both a", nobody, "pub", "a", false},
		{"anonymous", "anonymous allow both a", nobody, "pub", "a", true},
		{"anonymous is nobody with a name", "anonymous allow both a", alice, "pub", "a", false},
		{"a client pattern", "client a-* allow both a", alice, "pub", "a", true},
		{"a client pattern that does not match", "client a-* allow both a", bob, "pub", "a", false},
		{"both patterns have to match", "user alice client b-* allow both a", alice, "pub", "a", false},
		{"%u", "user * allow publish d/%u/#", alice, "pub", "d/alice/t", true},
		{"another's %u", "user * allow publish d/%u/#", alice, "pub", "d/bob/t", false},
		{"%c inside a level", "everyone allow publish d/x-%c", alice, "pub", "d/x-a-1", true},
		{"%%", "everyone allow publish 100%%", alice, "pub", "100%", true},
		{"a name that is a wildcard widens nothing", "user * allow both d/%u/t", Identity{"+", "x"}, "sub", "d/+/t", false},
		{"nor one that is all", "everyone allow both d/%c", Identity{"u", "#"}, "sub", "d/#", false},
		{"nor one of two levels", "everyone allow both d/%c", Identity{"u", "a/b"}, "pub", "d/a/b", false},
		{"nor an empty one", "everyone allow both d/%u/t", nobody, "pub", "d//t", false},
		{"nor one of $SYS", "user * allow both %u/#", Identity{"$SYS", "x"}, "sub", "$SYS/#", false},
		{"but a denial with it denies more", "everyone deny both d/%c/t\neveryone allow both #", Identity{"u", "#"}, "pub", "d/q", false},
		{"from that level on", "everyone deny both d/%c/t\neveryone allow both #", Identity{"u", "#"}, "pub", "e", true},
		{"all, at the first level", "everyone deny both %u/t\neveryone allow both $SYS/#", Identity{"$SYS", "x"}, "sub", "$SYS/t", false},
		{"a literal denial", "everyone deny both d/%c\neveryone allow both #", alice, "pub", "d/a-1", false},
		{"a subscription that is covered", "everyone allow subscribe a/#", alice, "sub", "a/+/c", true},
		{"its parent level too", "everyone allow subscribe a/#", alice, "sub", "a", true},
		{"one that reaches further", "everyone allow subscribe a/+", alice, "sub", "a/#", false},
		{"two rules do not add up", "everyone allow subscribe a/b\neveryone allow subscribe a/c", alice, "sub", "a/+", false},
		{"a denial inside the wanted", "everyone deny subscribe a/x\neveryone allow subscribe a/#", alice, "sub", "a/+", false},
		{"a denial beside the wanted", "everyone deny subscribe a/x\neveryone allow subscribe a/#", alice, "sub", "a/b/#", true},
		{"# is not $SYS", "everyone allow subscribe #", alice, "sub", "$SYS/x", false},
		{"a denial of $SYS leaves #", "everyone deny subscribe $SYS/#\neveryone allow subscribe #", alice, "sub", "#", true},
		{"a shared subscription", "everyone allow subscribe a/#", alice, "sub", "$share/g/a/b", true},
		{"is judged by its filter", "everyone allow subscribe a/#", alice, "sub", "$share/g/b", false},
		{"a denial too", "everyone deny subscribe s\neveryone allow subscribe #", alice, "sub", "$share/g/s", false},
	} {
		a, err := ParseACL("f", []byte(c.acl))
		if err != nil {
			t.Fatalf("%s: %v", c.why, err)
		}
		got := a.For(c.who).CanPublish(c.topic)
		if c.what == "sub" {
			got = a.For(c.who).CanSubscribe(c.topic)
		}
		if got != c.want {
			t.Errorf("%s: %s %s by %+v is %v, want %v", c.why, c.what, c.topic, c.who, got, c.want)
		}
	}
	var none *ACL
	if !none.For(nobody).CanPublish("a") || !none.For(nobody).CanSubscribe("#") {
		t.Error("without an ACL something is denied")
	}
}

// covers and overlaps against their definitions, over every name of a small world. The empty name, which no PUBLISH can
// have, counts: that "/#" and "+" have it in common denies more, not less.
func TestFiltersAgainstMatch(t *testing.T) {
	var names []string
	words := []string{"a", "b", "", "$x"}
	for _, x := range words {
		names = append(names, x)
		for _, y := range words {
			names = append(names, x+"/"+y)
			for _, z := range words {
				names = append(names, x+"/"+y+"/"+z, x+"/"+y+"/"+z+"/fresh", x+"/"+y+"/fresh", x+"/fresh")
			}
		}
	}
	names = append(names, "fresh", "$fresh", "fresh/a", "fresh/b", "fresh//", "fresh/a/b")
	level := rapid.SampledFrom([]string{"a", "b", "", "$x", "+"})
	filter := rapid.Custom(func(t *rapid.T) string {
		levels := rapid.SliceOfN(level, 1, 3).Draw(t, "levels")
		if rapid.Bool().Draw(t, "hash") {
			levels[len(levels)-1] = "#"
		}
		return strings.Join(levels, "/")
	}).Filter(func(s string) bool { return s != "" })
	rapid.Check(t, func(t *rapid.T) {
		x, y := filter.Draw(t, "x"), filter.Draw(t, "y")
		wantCovers, wantOverlaps := true, false
		for _, n := range names {
			inX, inY := topic.Match(x, n), topic.Match(y, n)
			wantOverlaps = wantOverlaps || inX && inY
			wantCovers = wantCovers && (inX || !inY)
		}
		if got := covers(x, y); got != wantCovers {
			t.Fatalf("%q covers %q: %v, want %v", x, y, got, wantCovers)
		}
		if got := overlaps(x, y); got != wantOverlaps {
			t.Fatalf("%q overlaps %q: %v, want %v", x, y, got, wantOverlaps)
		}
	})
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"a", "a", true},
		{"a", "ab", false},
		{"a*", "a", true},
		{"a*", "abc", true},
		{"*c", "abc", true},
		{"a*c", "ac", true},
		{"ab*ba", "aba", false}, // the ends must not share a character
		{"*b*", "abc", true},
		{"*b*b*", "abc", false},
		{"*", "", true},
		{"**", "x", true},
	} {
		if got := glob(c.pattern, c.s); got != c.want {
			t.Errorf("%q, %q: %v, want %v", c.pattern, c.s, got, c.want)
		}
	}
}

func passwords(t testing.TB, users ...string) *Passwords {
	t.Helper()
	file := ""
	for _, u := range users {
		file += u + ":" + cheap(t, "pw-"+u) + "\n"
	}
	p, err := ParsePasswords("f", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// counted counts the checks that bcrypt makes.
func counted(c *Checker) *atomic.Int64 {
	n := &atomic.Int64{}
	real := c.compare
	c.compare = func(hash, password []byte) error {
		n.Add(1)
		return real(hash, password)
	}
	return n
}

func TestCheck(t *testing.T) {
	c := NewChecker()
	n := counted(c)
	p := passwords(t, "a", "b")
	for _, step := range []struct {
		why, user, password string
		ok                  bool
		checks              int64 // in all so far
	}{
		{"right", "a", "pw-a", true, 1},
		{"remembered", "a", "pw-a", true, 1},
		{"wrong", "a", "pw-b", false, 2},
		{"remembered too", "a", "pw-b", false, 2},
		{"the right one is still known", "a", "pw-a", true, 2},
		{"another user's", "b", "pw-a", false, 3},
		{"an unknown user costs the same", "c", "pw-a", false, 4},
		{"once", "c", "pw-a", false, 4},
		{"more than bcrypt takes", "a", "pw-a" + strings.Repeat("x", 70), false, 4},
		{"empty", "a", "", false, 5},
	} {
		ok, err := c.Check(t.Context(), p, step.user, []byte(step.password))
		if err != nil || ok != step.ok || n.Load() != step.checks {
			t.Errorf("%s: %v, %v after %d checks, want %v after %d", step.why, ok, err, n.Load(), step.ok, step.checks)
		}
	}
	// A reload with another password: the old one must not be remembered.
	changed, err := ParsePasswords("f", []byte("a:"+cheap(t, "new")))
	if err != nil {
		t.Fatal(err)
	}
	if ok, _ := c.Check(t.Context(), changed, "a", []byte("pw-a")); ok {
		t.Error("the old password is still right after a reload")
	}
	if ok, _ := c.Check(t.Context(), changed, "a", []byte("new")); !ok {
		t.Error("the new password is wrong after a reload")
	}
}

// A reconnect storm of one client is one check; what is remembered of wrong passwords is bounded.
func TestCheckUnderAStorm(t *testing.T) {
	c := NewChecker()
	c.slots = make(chan struct{}, 1)
	n := counted(c)
	p := passwords(t, "a")
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			if ok, err := c.Check(t.Context(), p, "a", []byte("pw-a")); !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
		})
	}
	wg.Wait()
	if n.Load() != 1 {
		t.Errorf("%d checks for one password, want 1", n.Load())
	}
	c.compare = func(_, _ []byte) error { return bcrypt.ErrMismatchedHashAndPassword }
	for i := range 3 * maxWrong / 2 {
		_, _ = c.Check(t.Context(), p, "a", fmt.Append(nil, i))
	}
	if len(c.wrong) != maxWrong || len(c.order) != maxWrong {
		t.Errorf("%d wrong passwords are remembered, want %d", len(c.wrong), maxWrong)
	}
	if ok, _ := c.Check(t.Context(), p, "a", []byte("pw-a")); !ok {
		t.Error("wrong passwords drove out the right one")
	}
}

func TestCheckIsBounded(t *testing.T) {
	c := NewChecker()
	c.slots, c.waiting = make(chan struct{}, 1), make(chan struct{}, 2)
	p := passwords(t, "a")
	entered, leave := make(chan struct{}), make(chan struct{})
	c.compare = func(_, _ []byte) error {
		close(entered)
		<-leave
		return nil
	}
	done := make(chan bool)
	go func() {
		ok, _ := c.Check(context.Background(), p, "a", []byte("1"))
		done <- ok
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() {
		_, err := c.Check(ctx, p, "a", []byte("2"))
		waits <- err
	}()
	for len(c.waiting) < 2 {
		runtime.Gosched() // the second one is on its way to the queue
	}
	if _, err := c.Check(t.Context(), p, "a", []byte("3")); !errors.Is(err, ErrBusy) {
		t.Errorf("the third: %v, want %v", err, ErrBusy)
	}
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that waited: %v, want its context's error", err)
	}
	close(leave)
	if !<-done {
		t.Error("the first was refused")
	}
}

func TestAuthenticate(t *testing.T) {
	c := NewChecker()
	p := passwords(t, "a")
	withUser := func(user, password string) Credentials {
		return Credentials{HasUser: true, User: user, HasPassword: true, Password: []byte(password), ClientID: "id"}
	}
	for _, row := range []struct {
		why    string
		policy Policy
		cred   Credentials
		user   string
		err    error
	}{
		{"the right password", Policy{Passwords: p}, withUser("a", "pw-a"), "a", nil},
		{"the wrong one", Policy{Passwords: p}, withUser("a", "x"), "", ErrCredentials},
		{"also where anonymous clients are let in", Policy{Passwords: p, Anonymous: true}, withUser("a", "x"), "", ErrCredentials},
		{"a name alone", Policy{Passwords: p}, Credentials{HasUser: true, User: "a"}, "", ErrCredentials},
		{"no name", Policy{Passwords: p}, Credentials{}, "", ErrAnonymous},
		{"no name, allowed", Policy{Passwords: p, Anonymous: true}, Credentials{}, "", nil},
		{"a name that nothing proves is none", Policy{Anonymous: true}, withUser("a", "x"), "", nil},
		{"nor does it let anyone in", Policy{}, withUser("a", "x"), "", ErrAnonymous},
		{"a certificate", Policy{Passwords: p}, Credentials{Proven: "cn"}, "cn", nil},
		{"a certificate and its name", Policy{Passwords: p}, Credentials{Proven: "a", HasUser: true, User: "a"}, "a", nil},
		{"a certificate and another's name", Policy{Passwords: p}, Credentials{Proven: "cn", HasUser: true, User: "a"}, "", ErrOtherName},
	} {
		who, err := row.policy.Authenticate(t.Context(), c, row.cred)
		if !errors.Is(err, row.err) || who.User != row.user {
			t.Errorf("%s: %+v, %v, want %q, %v", row.why, who, err, row.user, row.err)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := write("pw", "a:"+someHash), write("badpw", "a:x")
	acl, badACL := write("acl", "everyone allow both #"), write("badacl", "x")
	if p, err := Load(Files{Passwords: good, ACL: acl}); err != nil || len(p.Passwords.hashes) != 1 || len(p.ACL.rules) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := Load(Files{Anonymous: true}); err != nil || p.Passwords != nil || p.ACL != nil || !p.Anonymous {
		t.Errorf("%+v, %v", p, err)
	}
	_, err := Load(Files{Passwords: bad, ACL: badACL})
	if err == nil || !strings.Contains(err.Error(), "badpw:1: ") || !strings.Contains(err.Error(), "badacl:1: ") {
		t.Errorf("%v, want the problems of both files", err)
	}
	if _, err := Load(Files{Passwords: filepath.Join(dir, "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.Truncate(good, maxFile+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(Files{Passwords: good}); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a huge file: %v", err)
	}
}

func FuzzParsePasswords(f *testing.F) {
	for _, s := range []string{"", "a:" + someHash, "# c\na:b:" + someHash + "\r\n", "a:x", ":\n", "a:$2a$99$" + someHash[7:]} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParsePasswords("f", data)
		if err != nil {
			return
		}
		// What is accepted can be edited, and stays acceptable with the same other users.
		edited, created, err := SetUser("f", data, "fuzz", someHash)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParsePasswords("f", edited)
		if err != nil || !has(again, "fuzz") || created == has(p, "fuzz") {
			t.Fatalf("after adding a user: %v", err)
		}
		for u := range p.hashes {
			if !has(again, u) {
				t.Fatalf("user %q is lost", u)
			}
		}
		removed, found, err := RemoveUser("f", edited, "fuzz")
		if err != nil || !found {
			t.Fatalf("removing the user: %v, %v", found, err)
		}
		if last, err := ParsePasswords("f", removed); err != nil || has(last, "fuzz") {
			t.Fatalf("after removing: %v", err)
		}
	})
}

func FuzzParseACL(f *testing.F) {
	for _, s := range []string{
		"everyone allow both #", "user a* client \"b c\" deny publish d/%u/+", "anonymous allow subscribe %c/%%", "x",
		"everyone allow both \"a\\n", "client * allow both $SYS/#",
	} {
		f.Add([]byte(s), "user", "client")
	}
	f.Fuzz(func(t *testing.T, data []byte, user, client string) {
		a, err := ParseACL("f", data)
		if err != nil {
			return
		}
		for _, r := range a.For(Identity{user, client}).rules {
			if topic.ValidName(user) != nil || topic.ValidName(client) != nil {
				continue // such names do not come out of a CONNECT
			}
			if r.filter == everything && !r.allow {
				continue
			}
			if err := topic.ValidFilter(r.filter); err != nil {
				t.Fatalf("a rule became an invalid filter: %v", err)
			}
		}
	})
}

func BenchmarkCanPublish(b *testing.B) {
	a, err := ParseACL("f", []byte("everyone deny both $SYS/#\nuser * allow publish d/%u/#\nanonymous allow both public/#\n"))
	if err != nil {
		b.Fatal(err)
	}
	rights := a.For(Identity{"alice", "x"})
	b.ReportAllocs()
	for b.Loop() {
		if !rights.CanPublish("d/alice/sensor/temperature") {
			b.Fatal("denied")
		}
	}
}

func has(p *Passwords, user string) bool {
	_, ok := p.hashes[user]
	return ok
}
