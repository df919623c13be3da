// Package human writes numbers for people: rates, times, ratios and sizes with no more digits than mean something. Every
// rendering of a result uses it, so that the same number looks the same in each. What was not measured is [Absent].
package human

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Absent stands for a value that was not measured, or that too few samples stand behind.
const Absent = "~"

// Count writes a whole number with thousands separators.
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return sign + b.String()
}

// Pace says which schedule an open loop had, by its rate and its ramp as in a result's cell; "" for a closed loop.
func Pace(perSecond int, ramp string) string {
	switch {
	case perSecond <= 0:
		return ""
	case ramp != "":
		return "ramped " + Clean(ramp) + "/s"
	}
	return "paced at " + Count(int64(perSecond)) + "/s"
}

// Payload says how large payloads were, by their mean in bytes and their distribution as in a result's cell.
func Payload(bytes int, sizes string) string {
	if sizes != "" {
		return fmt.Sprintf("payloads of %s bytes (mean %s)", Clean(sizes), Count(int64(bytes)))
	}
	return Count(int64(bytes)) + "-byte payloads"
}

// Rate writes messages per second: whole from 100 on, three significant digits below and above a million.
func Rate(perSecond float64) string {
	if perSecond >= 999_999.5 {
		return significant(perSecond/1e6, 3) + "M"
	}
	if perSecond >= 99.95 {
		return Count(int64(math.Round(perSecond)))
	}
	return significant(perSecond, 3)
}

// Latency writes nanoseconds with three significant digits and the unit that suits them.
func Latency(ns float64) string {
	for _, u := range units {
		if v := ns / u.ns; v < u.below {
			return significant(v, 3) + " " + u.name
		}
	}
	return Absent
}

type unit struct {
	name      string
	ns, below float64
}

// A unit ends where three digits would round up to a thousand of it.
var units = [...]unit{{"ns", 1, 999.5}, {"µs", 1e3, 999.5}, {"ms", 1e6, 999.5}, {"s", 1e9, math.Inf(1)}}

// Ratio writes a ratio: two decimals around 1, three significant digits above 10, two below 0.1.
func Ratio(r float64) string {
	switch {
	case r >= 999.5:
		return Count(int64(math.Round(min(r, math.MaxInt64/2))))
	case r >= 9.995:
		return significant(r, 3)
	case r >= 0.0995:
		return strconv.FormatFloat(r, 'f', 2, 64)
	default:
		return significant(r, 2)
	}
}

// Interval writes the bounds of a ratio, or Absent.
func Interval(low, high *float64) string {
	if low == nil || high == nil {
		return Absent
	}
	return "[" + Ratio(*low) + ", " + Ratio(*high) + "]"
}

// Bytes writes a size in binary units.
func Bytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, names := float64(n), []string{"KiB", "MiB", "GiB", "TiB"}
	name := ""
	for _, name = range names {
		v /= 1024
		if v < 999.5 {
			break
		}
	}
	return significant(v, 3) + " " + name
}

// Duration writes a time span, to the millisecond below a minute and to the second above.
func Duration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.String()
	case d < time.Minute:
		return d.Round(time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

// Plural writes a count and its noun: "1 connection", "1,000 connections".
func Plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") {
		return Count(n) + " " + noun + "es"
	}
	return Count(n) + " " + noun + "s"
}

// List joins words: "1, 10 and 256".
func List(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return strings.Join(words, "")
}

// Clean makes text from a broker or a file safe for a terminal and a line: control characters become spaces.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) && !unicode.IsSpace(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
}

// Cut shortens text to at most width characters, in the middle, where names of targets differ least.
func Cut(s string, width int) string {
	r := []rune(s)
	if len(r) <= width || width < 3 {
		return s
	}
	head := (width - 1) / 2
	return string(r[:head]) + "…" + string(r[len(r)-(width-1-head):])
}

// significant writes v with that many significant digits and no exponent.
func significant(v float64, digits int) string {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	// Rounding first may carry into a further digit: 9.996 is 10.0, not 10.00.
	decimals := digits - 1 - exponent(v)
	scale := math.Pow(10, float64(decimals))
	if scaled := math.Round(v*scale) / scale; exponent(scaled) > exponent(v) {
		decimals--
	}
	return strconv.FormatFloat(v, 'f', max(decimals, 0), 64)
}

func exponent(v float64) int { return int(math.Floor(math.Log10(math.Abs(v)))) }
