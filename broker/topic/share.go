package topic

import "strings"

// sharePrefix begins the Topic Filter of a shared subscription, MQTT 5.0, section 4.8.2.
const sharePrefix = "$share/"

// Shared takes a valid Topic Filter apart: of $share/{ShareName}/{filter} it returns the ShareName and the filter inside.
// ok is false for any other filter. It does not allocate.
func Shared(filter string) (share, inner string, ok bool) {
	rest, ok := strings.CutPrefix(filter, sharePrefix)
	if !ok {
		return "", "", false
	}
	share, inner, _ = strings.Cut(rest, "/")
	return share, inner, true
}

// validShare checks what a shared subscription has before the filter inside, and returns that.
func validShare(kind, s string) (inner string, err error) {
	rest, ok := strings.CutPrefix(s, sharePrefix)
	if !ok {
		return s, nil
	}
	share, inner, more := strings.Cut(rest, "/")
	switch {
	case share == "":
		return "", &Error{kind, s, "MQTT-4.8.2-1", "the ShareName is empty"}
	case strings.ContainsAny(share, "+#"):
		return "", &Error{kind, s, "MQTT-4.8.2-2", "the ShareName contains a wildcard"}
	case !more || inner == "":
		return "", &Error{kind, s, "MQTT-4.8.2-2", "no topic filter follows the ShareName"}
	}
	return inner, nil
}
