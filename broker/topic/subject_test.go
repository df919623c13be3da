package topic

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nats-io/nats-server/v2/server"
)

func TestSubject(t *testing.T) {
	for _, c := range []struct{ name, subject, why string }{
		{"a", "t.a", "the branch comes first"},
		{"a/b/c", "t.a.b.c", "levels are tokens"},
		{"t/a", "t.t.a", "a level that looks like a branch"},
		{"$SYS/a", "s.SYS.a", "'$' is the branch"},
		{"$", "s.%", "what is left of the level is empty"},
		{"$/a", "s.%.a", "the same with more levels"},
		{"$$a", "s.$a", "only the first '$'"},
		{"a/$b", "t.a.$b", "only at the start"},
		{"/", "t.%.%", "two empty levels"},
		{"/a//b/", "t.%.a.%.b.%", "empty levels anywhere"},
		{"%", "t.%25", "the level '%' is not an empty level"},
		{"%25", "t.%2525", "nor is something that looks escaped"},
		{"a.b", "t.a%2Eb", "a dot is not a separator"},
		{"*/>", "t.%2A.%3E", "NATS wildcards are characters"},
		{"a b\tc\r\nd", "t.a%20b%09c%0D%0Ad", "white space"},
		{"\u007f\u0001\f", "t.%7F%01%0C", "control characters"},
		{"x\uFFFD", "t.x%EF%BF%BD", "U+FFFD"},
		{"\uFFFCä", "t.\uFFFCä", "other characters are as they are"},
	} {
		if got := Subject(c.name); got != c.subject {
			t.Errorf("Subject(%q) = %q, want %q: %s", c.name, got, c.subject, c.why)
		}
		if got, err := fromSubject(c.subject); got != c.name || err != nil {
			t.Errorf("fromSubject(%q) = %q, %v, want %q", c.subject, got, err, c.name)
		}
		if !server.IsValidLiteralSubject(c.subject) {
			t.Errorf("nats-server does not take %q as a literal subject", c.subject)
		}
	}
}

func TestFromSubjectRefuses(t *testing.T) {
	for _, c := range []struct{ subject, why string }{
		{"", "empty"},
		{"t", "a branch without levels"},
		{"t.", "an empty token"},
		{"t.a..b", "an empty token inside"},
		{"s.", "an empty token in the other branch"},
		{"u.a", "another branch"},
		{"a.b", "no branch"},
		{"t.$SYS", "it would be a second subject of $SYS"},
		{"t.a*", "a character that should be escaped"},
		{"t.*", "a wildcard"},
		{"t.a.>", "a wildcard at the end"},
		{"t.a b", "a space"},
		{"t.a/b", "the separator of levels"},
		{"t.\x7f", "a control character"},
		{"t.\uFFFD", "U+FFFD as it is"},
		{"t.a%", "an escape without digits"},
		{"t.a%2", "an escape with one digit"},
		{"t.%2e", "lower case would be a second spelling"},
		{"t.%41", "so would be a letter"},
		{"t.%EF", "a part of U+FFFD"},
		{"t.%%", "an empty level twice"},
		{"t.%00", "U+0000 is in no topic name"},
		{"t.+", "an MQTT wildcard is in no topic name"},
		{"t.a#", "nor is the other"},
		{"t.\xff", "not UTF-8"},
	} {
		if name, err := fromSubject(c.subject); err == nil {
			t.Errorf("fromSubject(%q) = %q, want an error: %s", c.subject, name, c.why)
		} else if !strings.HasPrefix(err.Error(), "subject ") {
			t.Errorf("fromSubject(%q): %v, want the subject first", c.subject, err)
		}
	}
}

func TestSubjectFilter(t *testing.T) {
	for _, c := range []struct {
		filter   string
		subjects []string
	}{
		{"#", []string{"t.>"}},
		{"+", []string{"t.*"}},
		{"+/x", []string{"t.*.x"}},
		{"a/#", []string{"t.a", "t.a.>"}},
		{"a/+/#", []string{"t.a.*", "t.a.*.>"}},
		{"+/#", []string{"t.*", "t.*.>"}},
		{"/#", []string{"t.%", "t.%.>"}},
		{"$SYS/#", []string{"s.SYS", "s.SYS.>"}},
		{"$/+", []string{"s.%.*"}},
		{"a/b", []string{"t.a.b"}},
		{"a.b/*/>", []string{"t.a%2Eb.%2A.%3E"}},
	} {
		got := SubjectFilter(c.filter)
		if !slices.Equal(got, c.subjects) {
			t.Errorf("SubjectFilter(%q) = %q, want %q", c.filter, got, c.subjects)
		}
		for _, s := range got {
			if !server.IsValidSubject(s) {
				t.Errorf("nats-server does not take %q as a subject", s)
			}
		}
	}
}

// subjectMatches is how NATS matches: '*' one token, a last '>' one or more.
func subjectMatches(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range p {
		if token == ">" && i == len(p)-1 {
			return len(s) > i
		}
		if i >= len(s) || token != "*" && token != s[i] {
			return false
		}
	}
	return len(p) == len(s)
}

// matchBySubject is Match by way of the subjects; at most one of them may match, or a consumer of both would deliver twice.
func matchBySubject(t *testing.T, filter, name string, matches func(pattern, subject string) bool) bool {
	n := 0
	for _, p := range SubjectFilter(filter) {
		if matches(p, Subject(name)) {
			n++
		}
	}
	if n > 1 {
		t.Errorf("both subjects of %q match the subject of %q", filter, name)
	}
	return n > 0
}

func TestSubjectsMatchAsTopicsDo(t *testing.T) {
	for _, c := range matches {
		if got := matchBySubject(t, c.filter, c.name, subjectMatches); got != c.want {
			t.Errorf("by subjects %q matches %q: %v, want %v: %s", c.filter, c.name, got, c.want, c.why)
		}
		if got := matchBySubject(t, c.filter, c.name, natsMatches); got != c.want {
			t.Errorf("nats-server: %q matches %q: %v, want %v: %s", c.filter, c.name, got, c.want, c.why)
		}
	}
}

func natsMatches(pattern, subject string) bool { return server.SubjectMatchesFilter(subject, pattern) }

func FuzzSubjectsMatchAsTopicsDo(f *testing.F) {
	for _, c := range matches {
		f.Add(c.filter, c.name)
	}
	f.Add("%/+", "%/%25")
	f.Add("*/>", "*/>")
	f.Fuzz(func(t *testing.T, filter, name string) {
		if ValidFilter(filter) != nil || ValidName(name) != nil {
			t.Skip("not a topic name")
		}
		want := Match(filter, name)
		if got := matchBySubject(t, filter, name, subjectMatches); got != want {
			t.Errorf("Match(%q, %q) = %v, by subjects %q, %q: %v", filter, name, want, SubjectFilter(filter), Subject(name), got)
		}
		if got := matchBySubject(t, filter, name, natsMatches); got != want {
			t.Errorf("Match(%q, %q) = %v, by nats-server %v", filter, name, want, got)
		}
	})
}

// FuzzSubject checks that the mapping is a bijection between valid names and the subjects that fromSubject accepts: there
// and back is the identity from either side, which makes it injective.
func FuzzSubject(f *testing.F) {
	for _, c := range matches {
		f.Add(c.name)
		f.Add(Subject(c.name))
	}
	for _, s := range []string{"t.%EF%BF%BD%", "t.%25", "s.%.%", "\uFFFD", "a b", "%EF%BF%BD"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if ValidName(s) == nil {
			subject := Subject(s)
			if name, err := fromSubject(subject); name != s || err != nil {
				t.Errorf("%q -> %q -> %q, %v", s, subject, name, err)
			}
			if !server.IsValidLiteralSubject(subject) || strings.ContainsAny(subject, "*> \t\r\n\f\x00\x7f\uFFFD") {
				t.Errorf("%q -> %q, not a legal literal subject", s, subject)
			}
			if len(subject) > 3*len(s)+2 {
				t.Errorf("%q -> %d bytes", s, len(subject))
			}
		}
		if name, err := fromSubject(s); err == nil {
			if ValidName(name) != nil || Subject(name) != s {
				t.Errorf("subject %q -> %q -> %q", s, name, Subject(name))
			}
		}
	})
}

func BenchmarkSubject(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = Subject("plant/7/line/3/temperature")
	}
}

// fromSubject returns the Topic Name that a subject stands for. Anything that [Subject] does not return for a valid Topic
// Name is an error.
func fromSubject(subject string) (string, error) {
	bad := func(reason string) (string, error) {
		return "", fmt.Errorf("subject %.80q stands for no topic name: %s", subject, reason)
	}
	b := make([]byte, 0, len(subject))
	rest, ok := strings.CutPrefix(subject, branchPlain)
	if !ok {
		if rest, ok = strings.CutPrefix(subject, branchReserved); !ok {
			return bad("its first token is neither t nor s")
		}
		b = append(b, '$')
	} else if reserved(rest) {
		return bad("a level with a leading '$' is in branch t")
	}
	for more := true; more; {
		var token string
		token, rest, more = strings.Cut(rest, ".")
		if b, ok = appendLevel(b, token); !ok {
			return bad("it has a token that is not escaped as it should be")
		}
		if more {
			b = append(b, '/')
		}
	}
	name := string(b)
	if err := ValidName(name); err != nil {
		return bad(err.Error())
	}
	return name, nil
}

// appendLevel undoes appendToken. It is false for a token that appendToken does not write.
func appendLevel(b []byte, token string) (_ []byte, ok bool) {
	if token == "%" {
		return b, true
	}
	if token == "" {
		return b, false
	}
	for i := 0; i < len(token); i++ {
		c := token[i]
		switch {
		case c == '%' && strings.HasPrefix(token[i:], replacementEscaped):
			b = utf8.AppendRune(b, utf8.RuneError)
			i += len(replacementEscaped) - 1
		case c == '%':
			if i+2 >= len(token) {
				return b, false
			}
			high, low := strings.IndexByte(hex, token[i+1]), strings.IndexByte(hex, token[i+2])
			if high < 0 || low < 0 || !escaped(byte(high<<4|low)) {
				return b, false
			}
			b = append(b, byte(high<<4|low))
			i += 2
		case c == '/', escaped(c), c == replacement[0] && strings.HasPrefix(token[i:], replacement):
			return b, false
		default:
			b = append(b, c)
		}
	}
	return b, true
}
