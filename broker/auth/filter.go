package auth

import "strings"

// covers reports whether every Topic Name that the filter sub matches is matched by the filter allowed as well. Both are
// valid.
func covers(allowed, sub string) bool {
	// '+' and '#' at the front match no name that starts with '$' [MQTT-4.7.2-1]; a literal '$' level there is not covered.
	if startsWild(allowed) && strings.HasPrefix(sub, "$") {
		return false
	}
	if sub == "#" {
		return allowed == "#" || allowed == "+/#" // "+/#" includes its parent level, so it is everything too
	}
	a, s := split(allowed), split(sub)
	for i, want := range a {
		if want == "#" {
			return true
		}
		if i == len(s) || s[i] == "#" {
			return false
		}
		if want != "+" && want != s[i] {
			return false
		}
	}
	return len(s) == len(a)
}

// overlaps reports whether there is a Topic Name that both filters match. Both are valid.
func overlaps(a, b string) bool {
	if startsWild(a) && strings.HasPrefix(b, "$") || startsWild(b) && strings.HasPrefix(a, "$") {
		return false
	}
	x, y := split(a), split(b)
	for i := 0; ; i++ {
		switch {
		case i < len(x) && x[i] == "#", i < len(y) && y[i] == "#":
			return true // '#' includes the parent level, so it does not matter whether the other one goes on
		case i == len(x) || i == len(y):
			return len(x) == len(y)
		case x[i] != y[i] && x[i] != "+" && y[i] != "+":
			return false
		}
	}
}

func startsWild(filter string) bool {
	return strings.HasPrefix(filter, "+") || strings.HasPrefix(filter, "#")
}

func split(filter string) []string { return strings.Split(filter, "/") }

// unshared returns the Topic Filter of a shared subscription, $share/NAME/FILTER, or the filter itself.
func unshared(filter string) string {
	rest, ok := strings.CutPrefix(filter, "$share/")
	if !ok {
		return filter
	}
	if _, inner, ok := strings.Cut(rest, "/"); ok && inner != "" {
		return inner
	}
	return filter
}

// glob reports whether s matches pattern, in which '*' stands for any run of characters.
func glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}
