package topic

import (
	"fmt"
	"strings"
	"unicode/utf8"
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
// package. [FromSubject] is its inverse.
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

// FromSubject returns the Topic Name that a subject stands for. Anything that [Subject] does not return for a valid Topic
// Name is an error.
func FromSubject(subject string) (string, error) {
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
