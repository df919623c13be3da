package packet

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the expect lines of the vectors")

const (
	vectorFiles  = "../../testdata/packet/*.txt"
	vectorFiles5 = "../../testdata/packet/5.0/*.txt"
)

// vector is one block of a file in testdata/packet, whose README.txt says what the keys mean.
type vector struct {
	where               string // file and line
	name, why           string
	raw                 []byte
	limit               int
	statement, row      string
	reencodes           bool
	from                Role // MQTT 5.0: who sends it
	expect              string
	expectLine          int // index into the lines of the file
	expectPath, problem string
}

// legal reports whether the bytes are one whole legal packet.
func (v vector) legal() bool {
	return !v.refused() && !strings.HasPrefix(v.expect, "incomplete") && v.limit == MaxRemaining
}

// refused reports whether the bytes are an error, in the words of [Error.Error].
func (v vector) refused() bool {
	return strings.HasPrefix(v.expect, "malformed") || strings.Contains(v.expect, "protocol error in") ||
		strings.Contains(v.expect, "invalid in ")
}

func loadVectors(t testing.TB) []vector {
	t.Helper()
	return loadVectorsFrom(t, vectorFiles)
}

func loadVectorsFrom(t testing.TB, files string) []vector {
	t.Helper()
	paths, err := filepath.Glob(files)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no vectors in %s: %v", files, err)
	}
	var all []vector
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, parseVectors(path, string(data))...)
	}
	names := map[string]string{}
	for _, v := range all {
		if v.name == "" || v.why == "" || v.statement == "" || v.expect == "" || v.problem != "" {
			t.Fatalf("%s: a vector needs name, why, bytes, statement and expect: %+v", v.where, v)
		}
		if other, twice := names[v.name]; twice {
			t.Fatalf("%s: %s is also the name of the vector at %s", v.where, v.name, other)
		}
		names[v.name] = v.where
	}
	return all
}

func parseVectors(path, text string) (all []vector) {
	var v *vector
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if strings.TrimSpace(line) == "" {
			v = nil
			continue
		}
		if v == nil {
			all = append(all, vector{
				where: fmt.Sprintf("%s:%d", filepath.Base(path), i+1), limit: MaxRemaining, reencodes: true, expectPath: path,
			})
			v = &all[len(all)-1]
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		var err error
		switch key {
		case "name":
			v.name = value
		case "why":
			v.why = value
		case "bytes":
			v.raw, err = parseBytes(value)
		case "limit":
			v.limit, err = strconv.Atoi(value)
		case "statement":
			v.statement = value
		case "row":
			v.row = value
		case "reencode":
			v.reencodes = value != "differs"
		case "from":
			v.from = map[string]Role{"client": FromClient, "server": FromServer}[value]
		case "expect":
			v.expect, v.expectLine = value, i
		default:
			err = fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			v.problem = err.Error()
		}
	}
	return all
}

// parseBytes reads groups of hex digits and quoted strings, each of which may be followed by *N.
func parseBytes(s string) (b []byte, err error) {
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		var group []byte
		if s[0] == '"' {
			quoted, err := strconv.QuotedPrefix(s)
			if err != nil {
				return nil, err
			}
			text, err := strconv.Unquote(quoted)
			if err != nil {
				return nil, err
			}
			group, s = []byte(text), s[len(quoted):]
		} else {
			digits := s[:len(s)-len(strings.TrimLeft(s, "0123456789abcdef"))]
			if group, err = hex.DecodeString(digits); err != nil || len(group) == 0 {
				return nil, fmt.Errorf("hex digits in pairs or a quoted string expected at %q", s)
			}
			s = s[len(digits):]
		}
		times := 1
		if rest, ok := strings.CutPrefix(s, "*"); ok {
			number, after, _ := strings.Cut(rest, " ")
			if times, err = strconv.Atoi(number); err != nil {
				return nil, err
			}
			s = after
		}
		b = append(b, slices.Repeat(group, times)...)
	}
	return b, nil
}

// decode splits and parses one packet whatever its type: what it is in the words of the vectors, the bytes that encoding
// it again gives, and the error.
func decode(raw []byte, limit int) (text string, again []byte, err error) {
	return decodeAs(V311, raw, limit, parse)
}

func decodeAs(ver Version, raw []byte, limit int, parse func(Frame) (string, []byte, error)) (text string, again []byte, err error) {
	f, n, need, err := ver.Split(raw, limit)
	switch {
	case err != nil:
		return err.Error(), nil, err
	case n == 0 && need == 0:
		return "incomplete, size not known", nil, nil
	case n == 0:
		return fmt.Sprintf("incomplete, %d bytes in all", need), nil, nil
	case n != len(raw):
		return fmt.Sprintf("%d bytes of %d", n, len(raw)), nil, nil
	}
	text, again, err = parse(f)
	if err != nil {
		text = err.Error()
	}
	return text, again, err
}

// parse is what every user of the package does with a frame: switch on its type.
func parse(f Frame) (text string, again []byte, err error) {
	switch t := f.Type(); t {
	case CONNECT:
		p, err := ParseConnect(f)
		return describeConnect(p), AppendConnect(nil, &p), err
	case CONNACK:
		sp, code, err := ParseConnack(f)
		return fmt.Sprintf("CONNACK sp=%v code=%d", sp, code), AppendConnack(nil, sp, code), err
	case PUBLISH:
		p, err := ParsePublish(f)
		payload := strconv.QuoteToASCII(string(p.Payload))
		if len(p.Payload) > 64 {
			payload = fmt.Sprintf("%d bytes", len(p.Payload))
		}
		return fmt.Sprintf("PUBLISH topic=%q qos=%d id=%d dup=%v retain=%v payload=%s", p.Topic, p.QoS, p.ID, p.Dup, p.Retain, payload),
			AppendPublish(nil, &p), err
	case PUBACK, PUBREC, PUBREL, PUBCOMP, UNSUBACK:
		id, err := ParseAck(f)
		return fmt.Sprintf("%v id=%d", t, id), AppendAck(nil, t, id), err
	case SUBSCRIBE:
		p, err := ParseSubscribe(f)
		text := fmt.Sprintf("SUBSCRIBE id=%d", p.ID)
		for _, s := range p.Subscriptions {
			text += fmt.Sprintf(" %q=%d", s.Filter, s.QoS)
		}
		return text, AppendSubscribe(nil, &p), err
	case SUBACK:
		id, codes, err := ParseSuback(f)
		return fmt.Sprintf("SUBACK id=%d codes=%x", id, codes), AppendSuback(nil, id, codes), err
	case UNSUBSCRIBE:
		p, err := ParseUnsubscribe(f)
		text := fmt.Sprintf("UNSUBSCRIBE id=%d", p.ID)
		for _, filter := range p.Filters {
			text += fmt.Sprintf(" %q", filter)
		}
		return text, AppendUnsubscribe(nil, &p), err
	case PINGREQ, PINGRESP, DISCONNECT:
		return t.String(), AppendEmpty(nil, t), ParseEmpty(f)
	default:
		return "", nil, fmt.Errorf("split let %v pass", t)
	}
}

func describeConnect(p Connect) string {
	s := fmt.Sprintf("CONNECT level=%d clean=%v keepalive=%d id=%q", p.Level, p.CleanSession, p.KeepAlive, p.ClientID)
	if w := p.Will; w != nil {
		s += fmt.Sprintf(" will(%q qos=%d retain=%v %q)", w.Topic, w.QoS, w.Retain, w.Payload)
	}
	if p.HasUsername {
		s += fmt.Sprintf(" user=%q", p.Username)
	}
	if p.HasPassword {
		s += fmt.Sprintf(" password=%q", p.Password)
	}
	return s
}

func TestVectors(t *testing.T) {
	checkVectors(t, loadVectors(t), func(v vector) (string, []byte, error) { return decode(v.raw, v.limit) })
}

// checkVectors compares what decode makes of the vectors with what they say, or rewrites that.
func checkVectors(t *testing.T, vectors []vector, decode func(vector) (text string, again []byte, err error)) {
	changed := map[string]map[int]string{}
	for _, v := range vectors {
		text, again, err := decode(v)
		if text != v.expect {
			if !*update {
				t.Errorf("%s: %s: %s\n% x\ngot  %s\nwant %s", v.where, v.name, v.why, clip(v.raw), text, v.expect)
				continue
			}
			if changed[v.expectPath] == nil {
				changed[v.expectPath] = map[int]string{}
			}
			changed[v.expectPath][v.expectLine] = "expect: " + text
		}
		var e *Error
		if errors.As(err, &e) && e.Statement != numbered(v.statement) {
			t.Errorf("%s: %s: the error names %q, want %q", v.where, v.name, e.Statement, numbered(v.statement))
		}
		if err == nil && again != nil && (string(again) == string(v.raw)) != v.reencodes {
			t.Errorf("%s: %s: encoded again\ngot  % x\nfrom % x", v.where, v.name, clip(again), clip(v.raw))
		}
	}
	for path, lines := range changed {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Split(string(data), "\n")
		for i, line := range lines {
			all[i] = line
		}
		if err := os.WriteFile(path, []byte(strings.Join(all, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// numbered is the statement that an error must name: none where the rule has a section only.
func numbered(statement string) string {
	if strings.HasPrefix(statement, "MQTT-") {
		return statement
	}
	return ""
}

func clip(b []byte) []byte { return b[:min(len(b), 48)] }

// TestVectorsCoverTheCatalogue keeps the vectors from losing a row of the illegal input that a codec can see. The other
// rows are a connection's: what a packet means there, and what becomes of the packets around it.
func TestVectorsCoverTheCatalogue(t *testing.T) {
	have := map[string]bool{}
	for _, v := range loadVectors(t) {
		have[v.row] = true
	}
	for _, row := range []string{
		"BAD-01", "BAD-02", "BAD-03", "BAD-04", "BAD-05", "BAD-06", "BAD-07", "BAD-10", "BAD-11", "BAD-12", "BAD-14", "BAD-15",
		"BAD-16", "BAD-17", "BAD-18", "BAD-19", "H-12",
	} {
		if !have[row] {
			t.Errorf("no vector for %s", row)
		}
	}
}

// TestVectorsCutShort checks that no decoder reads past its frame or takes a part for the whole: each legal packet is cut
// at each byte, by the sender (the frame is incomplete) and by its own length (the body is too short).
func TestVectorsCutShort(t *testing.T) {
	for _, v := range loadVectors(t) {
		if !v.legal() || !v.reencodes || len(v.raw) > 200 { // what follows an unknown level is not read
			continue
		}
		whole, _, _ := decode(v.raw, v.limit)
		for n := range len(v.raw) {
			if text, _, err := decode(v.raw[:n], v.limit); err != nil || !strings.HasPrefix(text, "incomplete") {
				t.Errorf("%s: the first %d bytes are %s", v.name, n, text)
			}
		}
		f, _, _, _ := V311.Split(v.raw, v.limit)
		for n := range len(f.Body) {
			if text, _, err := parse(Frame{Header: f.Header, Body: f.Body[:n:n]}); err == nil && text == whole {
				t.Errorf("%s: %d bytes of the body are taken for all of it", v.name, n)
			}
		}
	}
}
