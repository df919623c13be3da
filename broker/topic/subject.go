package topic

import (
	"strings"
)

// The branches, by whether the first level starts with '$'.
const (
	branchPlain    = "t."
	branchReserved = "s."
)

// replacement is U+FFFD, and how it is escaped.
const (
	replacement        = "\uFFFD"
	replacementEscaped = "%EF%BF%BD"
)

const hex = "0123456789ABCDEF"

// escaped reports whether c is written as %XX in a token.
func escaped(c byte) bool {
	switch c {
	case '.', '*', '>', '%', 0x7F:
		return true
	}
	return c <= ' '
}

// Subject returns the NATS subject of a valid Topic Name: literal, and one for each name, as described at the top of the
// package.
func Subject(name string) string { return string(appendSubject(nil, name, false)) }

// SubjectFilter returns the NATS subjects, one or two, that together match the [Subject] of each Topic Name that a valid
// Topic Filter matches, and no other. No name's subject is matched by both of them.
func SubjectFilter(filter string) []string {
	if filter == "#" {
		return []string{branchPlain + ">"}
	}
	if parent, ok := strings.CutSuffix(filter, "/#"); ok {
		s := string(appendSubject(nil, parent, true))
		return []string{s, s + ".>"}
	}
	return []string{string(appendSubject(nil, filter, true))}
}

func appendSubject(b []byte, levels string, wildcards bool) []byte {
	if b == nil {
		b = make([]byte, 0, len(levels)+len(branchPlain)+16) // room for a few escapes
	}
	if reserved(levels) {
		b, levels = append(b, branchReserved...), levels[1:]
	} else {
		b = append(b, branchPlain...)
	}
	for more := true; more; {
		var level string
		level, levels, more = strings.Cut(levels, "/")
		if wildcards && level == "+" {
			b = append(b, '*')
		} else {
			b = appendToken(b, level)
		}
		if more {
			b = append(b, '.')
		}
	}
	return b
}

func appendToken(b []byte, level string) []byte {
	if level == "" {
		return append(b, '%')
	}
	for i := 0; i < len(level); i++ {
		c := level[i]
		switch {
		case escaped(c):
			b = append(b, '%', hex[c>>4], hex[c&0x0F])
		case c == replacement[0] && strings.HasPrefix(level[i:], replacement):
			b = append(b, replacementEscaped...)
			i += len(replacement) - 1
		default:
			b = append(b, c)
		}
	}
	return b
}
