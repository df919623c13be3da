package auth

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"inflight/broker/topic"
)

// Identity is who a client is.
type Identity struct {
	User     string // proven by a password or a certificate; "" is anonymous
	ClientID string // what the client said
}

// rule is one line of an ACL file.
type rule struct {
	anonymous          bool
	user, client       string // patterns
	byUser, byClient   bool   // whether the pattern counts; neither and not anonymous: everyone
	allow              bool
	publish, subscribe bool
	filter             string // with placeholders
	line               int
}

// ACL is the rules of an ACL file in their order. A value is immutable.
type ACL struct{ rules []rule }

// ReadACL reads an ACL file; an error names the file and the line.
func ReadACL(path string) (*ACL, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("acl file: %w", err)
	}
	return ParseACL(path, data)
}

// ParseACL parses the content of an ACL file. name is what errors call the file; all its errors are reported at once, up to
// a dozen.
func ParseACL(name string, data []byte) (*ACL, error) {
	const most = 12
	a := &ACL{}
	var errs []error
	n := 0
	for line := range bytes.Lines(data) {
		n++
		r, ok, err := aclLine(strings.TrimSpace(string(line)))
		switch {
		case err != nil && len(errs) == most:
			return nil, errors.Join(append(errs, fmt.Errorf("%s: and more", name))...)
		case err != nil:
			errs = append(errs, fmt.Errorf("%s:%d: %w", name, n, err))
		case ok:
			r.line = n
			a.rules = append(a.rules, r)
		}
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	return a, nil
}

func aclLine(line string) (r rule, ok bool, err error) {
	if line == "" || line[0] == '#' {
		return r, false, nil
	}
	if !utf8.ValidString(line) {
		return r, false, errors.New("not valid UTF-8")
	}
	f, err := fields(line)
	if err != nil {
		return r, false, err
	}
	if f, err = r.who(f); err != nil {
		return r, false, err
	}
	if len(f) != 3 {
		return r, false, errors.New("want WHO allow|deny publish|subscribe|both FILTER (put a filter with blanks in double quotes)")
	}
	switch f[0] {
	case "allow":
		r.allow = true
	case "deny":
	default:
		return r, false, fmt.Errorf("%q is neither allow nor deny", f[0])
	}
	r.publish = f[1] == "publish" || f[1] == "both"
	r.subscribe = f[1] == "subscribe" || f[1] == "both"
	if !r.publish && !r.subscribe {
		return r, false, fmt.Errorf("%q is neither publish, subscribe nor both", f[1])
	}
	r.filter = f[2]
	return r, true, r.checkFilter()
}

// who takes the first fields, which say whom the rule is about, and returns the others.
func (r *rule) who(f []string) (rest []string, err error) {
	switch f[0] {
	case "everyone":
		return f[1:], nil
	case "anonymous":
		r.anonymous = true
		return f[1:], nil
	}
	for len(f) > 0 && (f[0] == "user" || f[0] == "client") {
		if len(f) == 1 {
			return nil, fmt.Errorf("%s without a pattern", f[0])
		}
		pattern, seen := &r.user, &r.byUser
		if f[0] == "client" {
			pattern, seen = &r.client, &r.byClient
		}
		if *seen {
			return nil, fmt.Errorf("%s twice in one rule", f[0])
		}
		if f[1] == "" {
			return nil, fmt.Errorf("an empty %s pattern", f[0])
		}
		*pattern, *seen = f[1], true
		f = f[2:]
	}
	if !r.byUser && !r.byClient {
		return nil, fmt.Errorf("%q is neither user, client, anonymous nor everyone", f[0])
	}
	return f, nil
}

// checkFilter wants a Topic Filter whose placeholders are whole.
func (r *rule) checkFilter() error {
	for _, level := range split(r.filter) {
		if _, err := expand(level, "u", "c"); err != nil {
			return fmt.Errorf("filter %q: %w", r.filter, err)
		}
	}
	if strings.HasPrefix(r.filter, "$share/") {
		return fmt.Errorf("filter %q: a shared subscription is judged by the filter behind its name; write that one", r.filter)
	}
	plain, usable := r.fill(Identity{User: "u", ClientID: "c"})
	if !usable {
		return fmt.Errorf("filter %q is not usable", r.filter)
	}
	return topic.ValidFilter(plain)
}

// applies reports whether the rule is about who.
func (r *rule) applies(who Identity) bool {
	switch {
	case r.anonymous && who.User != "",
		r.byUser && (who.User == "" || !glob(r.user, who.User)),
		r.byClient && !glob(r.client, who.ClientID):
		return false
	}
	return true
}

// fill puts the identity's names into the filter. When a name must not stand in a filter, an allow rule is not usable and
// a deny rule ends in '#' from that level on.
func (r *rule) fill(who Identity) (filter string, usable bool) {
	if !strings.Contains(r.filter, "%") {
		return r.filter, true
	}
	levels := split(r.filter)
	for i, level := range levels {
		s, err := expand(level, who.User, who.ClientID)
		if err != nil {
			if r.allow {
				return "", false
			}
			if i == 0 {
				return everything, true
			}
			return strings.Join(append(levels[:i], "#"), "/"), true
		}
		levels[i] = s
	}
	filter = strings.Join(levels, "/")
	return filter, len(filter) <= topic.MaxLength || !r.allow
}

// expand fills the placeholders of one level.
func expand(level, user, client string) (string, error) {
	if !strings.Contains(level, "%") {
		return level, nil
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(level, "%")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		value := ""
		switch {
		case strings.HasPrefix(after, "%"):
			value = "%"
		case strings.HasPrefix(after, "u"):
			value = user
		case strings.HasPrefix(after, "c"):
			value = client
		default:
			return "", errors.New("after '%' want u, c or another '%'")
		}
		if value == "" || value[0] == '$' || strings.ContainsAny(value, "/+#") {
			return "", errors.New("the name would change the filter")
		}
		b.WriteString(value)
		level = after[1:]
	}
}

// Rights is what one identity may do: the rules that are about it, filled in. A value is immutable; nil allows everything.
type Rights struct{ rules []right }

// everything stands for all topics, which no filter does: '#' does not match names that start with '$'.
const everything = ""

type right struct {
	filter                    string // or everything, in a deny rule
	allow, publish, subscribe bool
}

// For returns the rights of who. A nil ACL gives nil rights, which allow everything.
func (a *ACL) For(who Identity) *Rights {
	if a == nil {
		return nil
	}
	rights := &Rights{}
	for i := range a.rules {
		r := &a.rules[i]
		if !r.applies(who) {
			continue
		}
		if filter, usable := r.fill(who); usable {
			rights.rules = append(rights.rules, right{filter, r.allow, r.publish, r.subscribe})
		}
	}
	return rights
}

// CanPublish reports whether a PUBLISH, or a Will Message, to a valid Topic Name is allowed.
func (r *Rights) CanPublish(name string) bool {
	if r == nil {
		return true
	}
	for i := range r.rules {
		if x := &r.rules[i]; x.publish && (x.filter == everything || topic.Match(x.filter, name)) {
			return x.allow
		}
	}
	return false
}

// CanSubscribe reports whether a subscription to a valid Topic Filter is allowed: everything that it can match.
func (r *Rights) CanSubscribe(filter string) bool {
	if r == nil {
		return true
	}
	filter = unshared(filter)
	for i := range r.rules {
		switch x := &r.rules[i]; {
		case !x.subscribe:
		case x.allow && covers(x.filter, filter):
			return true
		case !x.allow && (x.filter == everything || overlaps(x.filter, filter)):
			return false
		}
	}
	return false
}

// fields splits a line at blanks; a field in double quotes is a Go string.
func fields(line string) (f []string, err error) {
	for line = strings.TrimLeft(line, " \t"); line != ""; line = strings.TrimLeft(line, " \t") {
		if line[0] != '"' {
			end := strings.IndexAny(line, " \t")
			if end < 0 {
				end = len(line)
			}
			f, line = append(f, line[:end]), line[end:]
			continue
		}
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return nil, fmt.Errorf("the string %s does not end or has an unknown escape", line)
		}
		s, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("string %s: %w", quoted, err)
		}
		line = line[len(quoted):]
		if line != "" && line[0] != ' ' && line[0] != '\t' {
			return nil, fmt.Errorf("want a blank after %s", quoted)
		}
		f = append(f, s)
	}
	return f, nil
}
