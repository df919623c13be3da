package history

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// String is the packet in one line, in the words of the specification.
func (p *Packet) String() string {
	var b strings.Builder
	b.WriteString(p.Type.String())
	switch p.Type {
	case CONNECT:
		fmt.Fprintf(&b, " level %d client %q", p.Level, p.Client)
		if p.Clean {
			b.WriteString(" clean")
		}
		fmt.Fprintf(&b, " keep alive %d", p.KeepAlive)
	case CONNACK:
		fmt.Fprintf(&b, " code 0x%02X session present %v", p.Reason, p.Present)
	case PUBLISH:
		fmt.Fprintf(&b, " QoS %d", p.QoS)
		if p.QoS > 0 {
			fmt.Fprintf(&b, " id %d", p.ID)
		}
		if p.Dup {
			b.WriteString(" DUP")
		}
		if p.Retain {
			b.WriteString(" RETAIN")
		}
		fmt.Fprintf(&b, " %q %s", p.Topic, short(p.Payload))
	case PUBACK, PUBREC, PUBREL, PUBCOMP:
		fmt.Fprintf(&b, " id %d", p.ID)
	case SUBSCRIBE:
		fmt.Fprintf(&b, " id %d", p.ID)
		for i, f := range p.Filters {
			options := byte(0)
			if i < len(p.Codes) {
				options = p.Codes[i]
			}
			fmt.Fprintf(&b, " %q options 0x%02X", f, options)
		}
	case UNSUBSCRIBE:
		fmt.Fprintf(&b, " id %d %q", p.ID, p.Filters)
	case SUBACK, UNSUBACK:
		fmt.Fprintf(&b, " id %d", p.ID)
		if len(p.Codes) > 0 {
			fmt.Fprintf(&b, " codes % X", p.Codes)
		}
	}
	if p.Reason != 0 && p.Type != CONNACK {
		fmt.Fprintf(&b, " reason 0x%02X", p.Reason)
	}
	for _, q := range p.Props {
		about := propTable[q.ID]
		switch about.form {
		case textForm, dataForm:
			fmt.Fprintf(&b, " [%s %q]", about.name, q.Str)
		case pairForm:
			fmt.Fprintf(&b, " [%s %q=%q]", about.name, q.Str, q.Val)
		default:
			fmt.Fprintf(&b, " [%s %d]", about.name, q.Num)
		}
	}
	return b.String()
}

// short is a payload in a few characters.
func short(b []byte) string {
	const most = 24
	text := b
	if len(text) > most {
		text = text[:most]
	}
	printable := utf8.Valid(text)
	for _, r := range string(text) {
		printable = printable && unicode.IsPrint(r)
	}
	s := fmt.Sprintf("%q", text)
	if !printable {
		s = "0x" + hex.EncodeToString(text)
	}
	if len(b) > most {
		s += fmt.Sprintf("... (%d bytes)", len(b))
	}
	return s
}

// Describe is an event in lines for people, one for each packet of a write.
func (h *History) Describe(v Event) []string {
	level := h.Version
	if v.Conn >= 0 && v.Conn < len(h.Conns) {
		level = h.Conns[v.Conn].Version
	}
	describe := func(raw []byte) string {
		p, err := Decode(level, v.Kind != Sent, raw)
		if err != nil {
			return fmt.Sprintf("%v (malformed: %v)", p.Type, err)
		}
		return p.String()
	}
	var lines []string
	switch v.Kind {
	case Sent:
		packets, rest := Split(v.Raw)
		for _, raw := range packets {
			lines = append(lines, describe(raw))
		}
		if len(rest) > 0 {
			lines = append(lines, fmt.Sprintf("%d bytes that are no whole packet", len(rest)))
		}
		if v.Text != "" {
			lines = append(lines, v.Text)
		}
	case Received:
		lines = append(lines, describe(v.Raw))
	case Garbage:
		lines = append(lines, fmt.Sprintf("%d bytes that cannot begin a control packet", len(v.Raw)))
	default:
		text := v.Kind.String()
		if v.Text != "" {
			text += ": " + v.Text
		}
		if v.Kind == Mark {
			text = v.Text
		}
		lines = append(lines, text)
	}
	return lines
}

// ConnName is how people tell the connections apart: the script's name, and from the second on its number.
func (h *History) ConnName(i int) string {
	if i < 0 || i >= len(h.Conns) {
		return "-"
	}
	c := h.Conns[i]
	if c.Nth > 1 {
		return fmt.Sprintf("%s#%d", c.Name, c.Nth)
	}
	return c.Name
}

// Transcript limits: what does not fit is left out in the middle, and said so.
const (
	transcriptLines = 400
	transcriptHex   = 64 // bytes of a packet
)

// Transcript writes the history for people: when, who, in which direction, the packet in words and its bytes. The events
// whose indices are in marked are pointed at; of a long history those around them are kept, its beginning and its end.
func Transcript(w io.Writer, h *History, marked []int) error {
	keep := h.keep(marked)
	point := map[int]bool{}
	for _, i := range marked {
		point[i] = true
	}
	out := bufio.NewWriter(w)
	width := 1
	for i := range h.Conns {
		width = max(width, len(h.ConnName(i)))
	}
	skipped := 0
	for i, v := range h.Events {
		if !keep(i) {
			skipped++
			continue
		}
		if skipped > 0 {
			fmt.Fprintf(out, "           ... %d events left out\n", skipped)
			skipped = 0
		}
		arrow := map[Kind]string{Sent: "-->", Received: "<--", Garbage: "<--"}[v.Kind]
		if arrow == "" {
			arrow = "   "
		}
		sign := ' '
		if point[i] {
			sign = '!'
		}
		for n, line := range h.Describe(v) {
			stamp := fmt.Sprintf("%10.3f", float64(v.At)/float64(time.Millisecond))
			if n > 0 {
				stamp = strings.Repeat(" ", len(stamp))
			}
			fmt.Fprintf(out, "%c%s ms  %-*s %s %s\n", sign, stamp, width, h.ConnName(v.Conn), arrow, line)
		}
		if len(v.Raw) > 0 {
			bytes := hex.EncodeToString(v.Raw[:min(len(v.Raw), transcriptHex)])
			if len(v.Raw) > transcriptHex {
				bytes += fmt.Sprintf("... (%d bytes)", len(v.Raw))
			}
			fmt.Fprintf(out, "%s%s\n", strings.Repeat(" ", 1+10+5+width+5), bytes)
		}
	}
	if skipped > 0 {
		fmt.Fprintf(out, "           ... %d events left out\n", skipped)
	}
	return out.Flush()
}

// keep chooses the events of a transcript.
func (h *History) keep(marked []int) func(i int) bool {
	n := len(h.Events)
	if n <= transcriptLines {
		return func(int) bool { return true }
	}
	const ends, around, most = 40, 12, 10
	return func(i int) bool {
		if i < ends || i >= n-ends {
			return true
		}
		for _, m := range marked[:min(len(marked), most)] {
			if i >= m-around && i <= m+around {
				return true
			}
		}
		return false
	}
}
