package topic

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxLength is the longest Topic Name or Topic Filter in bytes [MQTT-4.7.3-3].
const MaxLength = 65535

// Error says why a string is no Topic Name or no Topic Filter, and names the statement that it breaks.
type Error struct {
	Kind      string // "topic name" or "topic filter"
	Topic     string // the string, whole
	Statement string // such as MQTT-4.7.1-2
	Reason    string
}

// Error quotes the beginning of the topic, so that a hostile one cannot fill a log or write control characters to it.
func (e *Error) Error() string {
	const shown = 64
	s := e.Topic
	more := ""
	if len(s) > shown {
		s, more = s[:shown], "..."
	}
	return fmt.Sprintf("%s %q%s: %s [%s]", e.Kind, s, more, e.Reason, e.Statement)
}

// ValidName reports whether s can be the Topic Name of a PUBLISH: 1 to 65,535 bytes of UTF-8 without U+0000 and without
// wildcards. The error is an [*Error]. It does not allocate for a valid name.
func ValidName(s string) error {
	const kind = "topic name"
	if err := validText(kind, s); err != nil {
		return err
	}
	if strings.ContainsAny(s, "+#") {
		return &Error{kind, s, "MQTT-4.7.1-1", "a wildcard is not allowed in a name"}
	}
	return nil
}

// ValidFilter reports whether s can be the Topic Filter of a subscription: 1 to 65,535 bytes of UTF-8 without U+0000,
// '+' only as a whole level, '#' only as the whole last level; that of a shared subscription has a ShareName and such a
// filter behind it. The error is an [*Error]. It does not allocate for a valid filter.
func ValidFilter(s string) error {
	const kind = "topic filter"
	if err := validText(kind, s); err != nil {
		return err
	}
	inner, err := validShare(kind, s)
	if err != nil {
		return err
	}
	for rest, more := inner, true; more; {
		var level string
		level, rest, more = strings.Cut(rest, "/")
		switch {
		case strings.Contains(level, "#") && (level != "#" || more):
			return &Error{kind, s, "MQTT-4.7.1-2", "'#' must be the whole last level"}
		case strings.Contains(level, "+") && level != "+":
			return &Error{kind, s, "MQTT-4.7.1-3", "'+' must be a whole level"}
		}
	}
	return nil
}

// validText checks what names and filters have in common. White space, control characters, a byte order mark and
// non-characters are legal, if unwise, and nothing is normalised [MQTT-4.7.3-4].
func validText(kind, s string) error {
	switch {
	case s == "":
		return &Error{kind, s, "MQTT-4.7.3-1", "it is empty"}
	case len(s) > MaxLength:
		return &Error{kind, s, "MQTT-4.7.3-3", fmt.Sprintf("it has %d bytes, at most %d can be encoded", len(s), MaxLength)}
	case strings.IndexByte(s, 0) >= 0:
		return &Error{kind, s, "MQTT-4.7.3-2", "it contains U+0000"}
	case !utf8.ValidString(s):
		return &Error{kind, s, "MQTT-1.5.3-1", "it is not valid UTF-8"}
	}
	return nil
}

// reserved reports whether a leading wildcard must not match name, which is so for names that start with '$'
// [MQTT-4.7.2-1].
func reserved(name string) bool { return name != "" && name[0] == '$' }

// Match reports whether a valid Topic Filter matches a valid Topic Name, section 4.7. It does not allocate. What it says
// of invalid ones is unspecified.
func Match(filter, name string) bool {
	if reserved(name) && filter != "" && (filter[0] == '+' || filter[0] == '#') {
		return false
	}
	names := true // name has a level left: an empty string still is one level
	for filters := true; filters; {
		var want, have string
		want, filter, filters = strings.Cut(filter, "/")
		if want == "#" {
			return true // the levels so far match, and '#' includes its parent level
		}
		if !names {
			return false
		}
		have, name, names = strings.Cut(name, "/")
		if want != "+" && want != have {
			return false
		}
	}
	return !names
}
