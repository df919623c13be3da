package human

import (
	"math"
	"testing"
	"time"
)

func TestNumbers(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	tests := []struct{ name, got, want string }{
		{"three digits have no separator", Count(999), "999"},
		{"four have one", Count(1_000), "1,000"},
		{"seven have two", Count(1_234_567), "1,234,567"},
		{"negative", Count(-1_234), "-1,234"},
		{"largest", Count(math.MaxInt64), "9,223,372,036,854,775,807"},

		{"rate", Rate(18_051.4), "18,051"},
		{"rate above a million", Rate(1_300_218), "1.30M"},
		{"rate just below a million", Rate(999_999.4), "999,999"},
		{"rate below 100", Rate(45.23), "45.2"},
		{"rate that rounds to 100", Rate(99.96), "100"},
		{"rate below 1", Rate(0.0123), "0.0123"},
		{"no rate", Rate(0), "0"},

		{"nanoseconds", Latency(750), "750 ns"},
		{"microseconds", Latency(1_234), "1.23 µs"},
		{"milliseconds", Latency(346_900_000), "347 ms"},
		{"milliseconds with a tenth", Latency(24_130_000), "24.1 ms"},
		{"two decimals", Latency(1_600_000), "1.60 ms"},
		{"rounding reaches the next unit", Latency(999_600), "1.00 ms"},
		{"rounding carries", Latency(9_996_000), "10.0 ms"},
		{"seconds", Latency(2_500_000_000), "2.50 s"},
		{"minutes stay seconds", Latency(3e12), "3000 s"},
		{"zero", Latency(0), "0 ns"},

		{"ratio near 1", Ratio(0.984), "0.98"},
		{"ratio of 1", Ratio(1), "1.00"},
		{"ratio above 10", Ratio(22.12), "22.1"},
		{"ratio that rounds to 10", Ratio(9.996), "10.0"},
		{"ratio with three digits", Ratio(105.3), "105"},
		{"ratio with four", Ratio(1_234), "1,234"},
		{"small ratio", Ratio(0.0451), "0.045"},
		{"tiny ratio", Ratio(0.00002), "0.000020"},
		{"interval", Interval(f(21.3), f(22.94)), "[21.3, 22.9]"},
		{"half an interval is none", Interval(f(1), nil), Absent},

		{"bytes", Bytes(1_023), "1023 B"},
		{"KiB", Bytes(4_096), "4.00 KiB"},
		{"MiB", Bytes(933 << 20), "933 MiB"},
		{"GiB", Bytes(1_000 << 20), "0.977 GiB"},

		{"milliseconds of a block", Duration(1_500 * time.Millisecond), "1.5s"},
		{"a run", Duration(201_400 * time.Millisecond), "3m21s"},

		{"one", Plural(1, "pass"), "1 pass"},
		{"two", Plural(2, "pass"), "2 passes"},
		{"many", Plural(1_000, "connection"), "1,000 connections"},

		{"nothing", List(nil), ""},
		{"one word", List([]string{"1"}), "1"},
		{"words", List([]string{"1", "10", "256"}), "1, 10 and 256"},

		{"escape sequences do not reach a terminal", Clean("a\x1b[31m\nb\u202e"), "a [31m b "},
		{"letters beyond ASCII do", Clean("µ é 日本"), "µ é 日本"},

		{"short enough", Cut("reference", 9), "reference"},
		{"cut in the middle", Cut("reference?store=staged", 11), "refer…taged"},
	}
	for _, test := range tests {
		if test.got != test.want {
			t.Errorf("%s: %q, want %q", test.name, test.got, test.want)
		}
	}
}
