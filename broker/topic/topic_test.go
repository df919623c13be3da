package topic

import (
	"errors"
	"strings"
	"testing"
)

var long = strings.Repeat("x", MaxLength)

func TestValidName(t *testing.T) {
	for _, c := range []struct{ name, statement, why string }{
		{"a", "", "one character is enough"},
		{"/", "", "two empty levels"},
		{"//", "", "three empty levels"},
		{"a/b c/ d", "", "spaces are legal"},
		{"$SYS/load", "", "a server may use it, and it is well formed"},
		{"ä/日本/\U0001F600", "", "any UTF-8"},
		{"\uFEFFa", "", "a byte order mark is a character [MQTT-1.5.3-3]"},
		{"a\u0001", "", "control characters should not be used, but are not malformed"},
		{"\uFFFD", "", "the replacement character itself is valid UTF-8"},
		{long, "", "the longest that can be encoded"},
		{"", "MQTT-4.7.3-1", "empty"},
		{long + "x", "MQTT-4.7.3-3", "one byte too long"},
		{"a\x00b", "MQTT-4.7.3-2", "U+0000"},
		{"a\xff", "MQTT-1.5.3-1", "a byte that UTF-8 does not have"},
		{"\xed\xa0\x80", "MQTT-1.5.3-1", "a surrogate"},
		{"\xc0\x80", "MQTT-1.5.3-1", "U+0000 overlong"},
		{"a/+/b", "MQTT-4.7.1-1", "single-level wildcard"},
		{"a/#", "MQTT-4.7.1-1", "multi-level wildcard"},
		{"a+", "MQTT-4.7.1-1", "also inside a level"},
	} {
		wantStatement(t, ValidName(c.name), c.name, c.statement, c.why)
	}
}

func TestValidFilter(t *testing.T) {
	for _, c := range []struct{ filter, statement, why string }{
		{"a/b", "", "no wildcard"},
		{"#", "", "everything"},
		{"+", "", "one level"},
		{"+/+", "", "two levels"},
		{"/+", "", "an empty level, then any"},
		{"+/tennis/#", "", "both wildcards"},
		{"sport/+/player1", "", "in the middle"},
		{"$SYS/#", "", "a wildcard after a literal level"},
		{"/", "", "two empty levels"},
		{long, "", "the longest that can be encoded"},
		{"", "MQTT-4.7.3-1", "empty"},
		{long + "x", "MQTT-4.7.3-3", "one byte too long"},
		{"a\x00", "MQTT-4.7.3-2", "U+0000"},
		{"a/\xc3\x28", "MQTT-1.5.3-1", "ill-formed UTF-8"},
		{"sport/tennis#", "MQTT-4.7.1-2", "not a level of its own"},
		{"sport/tennis/#/ranking", "MQTT-4.7.1-2", "not last"},
		{"#/", "MQTT-4.7.1-2", "an empty level follows"},
		{"##", "MQTT-4.7.1-2", "two"},
		{"+#", "MQTT-4.7.1-2", "not on its own"},
		{"sport+", "MQTT-4.7.1-3", "not an entire level"},
		{"+a/b", "MQTT-4.7.1-3", "not an entire level"},
		{"a/++", "MQTT-4.7.1-3", "two"},
		{"$share/g/a", "", "a shared subscription"},
		{"$share/g/#", "", "with a wildcard inside"},
		{"$share/g//", "", "the filter inside is two empty levels"},
		{"$share/g x/+/b", "", "a space is allowed"},
		{"$share", "", "no shared subscription: the separator is missing"},
		{"$shared/+", "", "another name"},
		{"a/$share/+", "", "not at the beginning"},
		{"$share/", "MQTT-4.8.2-1", "no ShareName"},
		{"$share//a", "MQTT-4.8.2-1", "an empty ShareName"},
		{"$share/#", "MQTT-4.8.2-2", "a wildcard for a ShareName"},
		{"$share/a+/b", "MQTT-4.8.2-2", "a wildcard in the ShareName"},
		{"$share/g", "MQTT-4.8.2-2", "no filter and no separator"},
		{"$share/g/", "MQTT-4.8.2-2", "no filter"},
		{"$share/g/a#", "MQTT-4.7.1-2", "the filter inside is one"},
	} {
		wantStatement(t, ValidFilter(c.filter), c.filter, c.statement, c.why)
	}
}

func TestShared(t *testing.T) {
	for _, c := range []struct {
		filter, share, inner string
		ok                   bool
	}{
		{"$share/g/a/+", "g", "a/+", true},
		{"$share/g//", "g", "/", true},
		{"$share/g/$share/h/a", "g", "$share/h/a", true},
		{"$share", "", "", false},
		{"a/b", "", "", false},
	} {
		if share, inner, ok := Shared(c.filter); share != c.share || inner != c.inner || ok != c.ok {
			t.Errorf("%q: got %q, %q, %v; want %q, %q, %v", c.filter, share, inner, ok, c.share, c.inner, c.ok)
		}
	}
}

func wantStatement(t *testing.T, err error, s, statement, why string) {
	t.Helper()
	var e *Error
	switch {
	case statement == "" && err != nil:
		t.Errorf("%.40q (%s): got %v, want valid", s, why, err)
	case statement != "" && !errors.As(err, &e):
		t.Errorf("%.40q (%s): got %v, want an *Error", s, why, err)
	case statement != "" && (e.Statement != statement || e.Topic != s):
		t.Errorf("%.40q (%s): got %v, want %s", s, why, err, statement)
	}
}

func TestErrorIsShortAndQuoted(t *testing.T) {
	err := ValidName("\x1b[2J" + long)
	if s := err.Error(); len(s) > 250 || strings.Contains(s, "\x1b") || !strings.Contains(s, "MQTT-4.7.3-3") {
		t.Errorf("got %q, want a short text without control characters that names the statement", s)
	}
	if got, want := ValidFilter("a/#/b").Error(), `topic filter "a/#/b": '#' must be the whole last level [MQTT-4.7.1-2]`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// matches are the examples of section 4.7 and what they leave open.
var matches = []struct {
	filter, name string
	want         bool
	why          string
}{
	{"sport/tennis/player1/#", "sport/tennis/player1", true, "'#' includes the parent level"},
	{"sport/tennis/player1/#", "sport/tennis/player1/ranking", true, "one level below"},
	{"sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true, "two levels below"},
	{"sport/#", "sport", true, "the parent again"},
	{"sport/#", "sports", false, "levels, not prefixes"},
	{"#", "a/b/c", true, "every message"},
	{"#", "/", true, "also with empty levels"},
	{"sport/tennis/+", "sport/tennis/player1", true, "one level"},
	{"sport/tennis/+", "sport/tennis/player1/ranking", false, "not two"},
	{"sport/+", "sport", false, "'+' does not match the parent"},
	{"sport/+", "sport/", true, "an empty level is a level"},
	{"+/+", "/finance", true, "an empty first level"},
	{"/+", "/finance", true, "the same spelt out"},
	{"+", "/finance", false, "two levels are not one"},
	{"+/#", "a", true, "'#' includes the level that '+' matched"},
	{"+/#", "a/b", true, "and below"},
	{"+/+/#", "a", false, "two levels at least"},
	{"a/b", "a/b/", false, "a trailing separator adds a level"},
	{"a/b/", "a/b", false, "the other way round"},
	{"a/b", "A/b", false, "case matters [MQTT-4.7.3-4]"},
	{"\u00e5", "a\u030a", false, "nothing is normalised [MQTT-4.7.3-4]"},
	{"#", "$SYS", false, "[MQTT-4.7.2-1]"},
	{"#", "$SYS/monitor/Clients", false, "[MQTT-4.7.2-1]"},
	{"+", "$SYS", false, "[MQTT-4.7.2-1]"},
	{"+/monitor/Clients", "$SYS/monitor/Clients", false, "[MQTT-4.7.2-1]"},
	{"+/#", "$", false, "[MQTT-4.7.2-1]: one character is a beginning too"},
	{"$SYS/#", "$SYS/monitor/Clients", true, "asked for by name"},
	{"$SYS/#", "$SYS", true, "and the parent"},
	{"$SYS/monitor/+", "$SYS/monitor/Clients", true, "a wildcard further on"},
	{"$/+", "$/a", true, "'$' alone"},
	{"a/+", "a/$b", true, "'$' is special only at the start"},
	{"+/b", "a$/b", true, "not inside the first level"},
	{"SYS", "$SYS", false, "'$' is a character of the name"},
}

func TestMatch(t *testing.T) {
	for _, c := range matches {
		if got := Match(c.filter, c.name); got != c.want {
			t.Errorf("Match(%q, %q) = %v, want %v: %s", c.filter, c.name, got, c.want, c.why)
		}
	}
}

// model is Match by its definition: level by level over the split strings.
func model(filter, name string) bool {
	f, n := strings.Split(filter, "/"), strings.Split(name, "/")
	if strings.HasPrefix(name, "$") && (f[0] == "#" || f[0] == "+") {
		return false
	}
	for len(f) > 0 && f[0] != "#" {
		if len(n) == 0 || f[0] != "+" && f[0] != n[0] {
			return false
		}
		f, n = f[1:], n[1:]
	}
	return len(f) > 0 || len(n) == 0
}

func FuzzMatch(f *testing.F) {
	for _, c := range matches {
		f.Add(c.filter, c.name)
	}
	f.Fuzz(func(t *testing.T, filter, name string) {
		valid := ValidFilter(filter) == nil && ValidName(name) == nil
		got := Match(filter, name) // does not panic on anything
		if valid && got != model(filter, name) {
			t.Errorf("Match(%q, %q) = %v", filter, name, got)
		}
		if valid && ValidName(filter) == nil && got != (filter == name) {
			t.Errorf("Match(%q, %q) = %v without wildcards", filter, name, got)
		}
	})
}

// FuzzValid checks that a name is exactly a filter without wildcards, and what every valid string has in common.
func FuzzValid(f *testing.F) {
	for _, c := range matches {
		f.Add(c.filter)
		f.Add(c.name)
	}
	for _, s := range []string{"", "\x00", "a/#/b", "a+", "\xff", "\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, filter := ValidName(s), ValidFilter(s)
		if wild := strings.ContainsAny(s, "+#"); (name == nil) != (filter == nil && !wild) {
			t.Errorf("%q: as a name %v, as a filter %v", s, name, filter)
		}
		if filter == nil && (s == "" || strings.Contains(s, "\x00") || strings.ToValidUTF8(s, "") != s) {
			t.Errorf("%q is a valid filter", s)
		}
		for i, level := range strings.Split(s, "/") {
			last := i == strings.Count(s, "/")
			if filter == nil && (strings.Contains(level, "#") && !(level == "#" && last) || strings.Contains(level, "+") && level != "+") {
				t.Errorf("%q is a valid filter", s)
			}
		}
	})
}

func TestNoAllocations(t *testing.T) {
	for _, c := range []struct {
		what string
		f    func()
	}{
		{"ValidName", func() { _ = ValidName("plant/7/line/3/temperature") }},
		{"ValidFilter", func() { _ = ValidFilter("plant/+/line/+/#") }},
		{"Match", func() { Match("plant/+/line/+/#", "plant/7/line/3/temperature") }},
	} {
		if n := testing.AllocsPerRun(100, c.f); n != 0 {
			t.Errorf("%s allocates %v times", c.what, n)
		}
	}
}
