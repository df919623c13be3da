package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/spf13/pflag"

	"inflight/broker"
)

// Whatever a setting holds, its printed form loads as the same.
func TestPrintedConfigLoadsAgain(t *testing.T) {
	odd := []string{
		"", "null", "Null", "~", "true", "on", "1e3", "0x10", "012", ":", "a:", "a: b", "a #b", "#", "- a", "[a]", "{a: b}", "&a", "*a", "!a",
		"%a", "@a", "`a", "'a'", `"a"`, `a\b`, `C:\new\table`, "a\nb", "a\tb", " a ", "é", "漢字", "\u2028", "\x7f", "a,b", "<&>", "|", ">", "---", "?",
		"nats://user@host:1/path?x=y", "[::1]:1883", "2001-01-01", ".inf", ".nan", "=", "<<",
	}
	values := func() (*pflag.FlagSet, *string, *[]string) {
		f := pflag.NewFlagSet("t", pflag.ContinueOnError)
		return f, f.String("text", "other", "a `TEXT`"), f.StringSlice("list", []string{"other"}, "a list")
	}
	for _, want := range odd {
		f, text, list := values()
		*text, *list = want, []string{want, "x", want}
		var b bytes.Buffer
		if err := printConfig(&b, f); err != nil {
			t.Fatal(err)
		}
		again, text, list := values()
		if err := applyConfig(again, "printed", b.Bytes()); err != nil {
			t.Errorf("%q: %v", want, err)
			continue
		}
		if *text != want || len(*list) != 3 || (*list)[0] != want || (*list)[2] != want {
			t.Errorf("%q came back as %q and %q from:\n%s", want, *text, *list, &b)
		}
	}
}

// Every flag of the command is a key, but those that only make sense on the command line.
func TestEveryFlagIsAKey(t *testing.T) {
	cmd := newBrokerCommand()
	var b bytes.Buffer
	if err := printConfig(&b, cmd.Flags()); err != nil {
		t.Fatal(err)
	}
	n := 0
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "config", "print-config", "help", "version":
			return
		}
		n++
		if !bytes.Contains(b.Bytes(), []byte("\n"+f.Name+":")) {
			t.Errorf("flag --%s has no key", f.Name)
		}
	})
	if n < 20 {
		t.Errorf("%d flags looked at", n)
	}
}

func TestSizes(t *testing.T) {
	for _, test := range []struct {
		text string
		want int // -1: refused
		back string
	}{
		{"1", 1, "1"},
		{"4096", 4096, "4KiB"},
		{"64KiB", 65_536, "64KiB"},
		{"1536 KiB", 1_572_864, "1536KiB"},
		{"4MiB", 4 << 20, "4MiB"},
		{"10B", 10, "10"},
		{"4MB", -1, ""},
		{"-1", -1, ""},
		{"1.5MiB", -1, ""},
		{"MiB", -1, ""},
		{"", -1, ""},
		{"9999999999999GiB", -1, ""},
	} {
		v := sizeValue(-7)
		err := v.Set(test.text)
		switch {
		case test.want < 0 && (err == nil || v != -7):
			t.Errorf("%q: %d, %v, want it refused", test.text, v, err)
		case test.want >= 0 && (err != nil || int(v) != test.want || v.String() != test.back):
			t.Errorf("%q: %d (%s), %v, want %d (%s)", test.text, v, &v, err, test.want, test.back)
		}
	}
}

// Hostile files give an error, or settings, and never a panic.
func FuzzBrokerConfig(f *testing.F) {
	for _, seed := range []string{"", "store: memory", "routes: [a, b]", "a: &x [*x]", "max-packet: 4MiB\n---\n", "- x", "? a\n: b", "{", "pipeline: !!bool on", "\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		flags := pflag.NewFlagSet("t", pflag.ContinueOnError)
		var cfg broker.Config
		(&brokerOptions{}).register(flags, &cfg)
		flags.StringSliceVar(&cfg.Routes, "routes", nil, "")
		if applyConfig(flags, "f", data) == nil {
			if err := printConfig(io.Discard, flags); err != nil {
				t.Fatal(err)
			}
		}
	})
}
