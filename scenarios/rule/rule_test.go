package rule

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"throughput >= 0.9x": "throughput >= 0.9x",
		"throughput>=5000/s": "throughput >= 5000/s",
		"p99 <= 20ms":        "ack-service.p99 <= 20ms",
		"end-to-end.p999 <= 1.5x at window=20,256 qos=2 effect 12.5%": "end-to-end.p999 <= 1.5x at qos=2 window=20,256 effect 12.5%",
		"throughput >= 1x effect 20% at connections=1 payload=64":     "throughput >= 1x at connections=1 payload=64 effect 20%",
		"p95 <= 1s":                       "ack-service.p95 <= 1s",
		"p99.5 <= 1s":                     "ack-service.p99.5 <= 1s",
		"p99.90 <= 1s":                    "ack-service.p999 <= 1s",
		"end-to-end.p9999 <= 1s":          "end-to-end.p99.99 <= 1s",
		"ack-response.p50.0 <= 1s":        "ack-response.p50 <= 1s",
		"pubrel-to-pubcomp.p00.1 <= 1s":   "pubrel-to-pubcomp.p00.1 <= 1s",
		"publish-to-pubrec.max <= 1s":     "publish-to-pubrec.max <= 1s",
		"p99 <= 1s at rate=max,500 qos=1": "ack-service.p99 <= 1s at qos=1 rate=max,500",
		"rss <= 200MiB":                   "rss <= 200MiB",
		"rss <= 1000B":                    "rss <= 1000B",
		"cpu <= 50us":                     "cpu <= 50µs",
		"exactly-once":                    "exactly-once",
		"ordering at qos=2":               "ordering at qos=2",
		"conformance contract":            "conformance contract",
	} {
		r, err := Parse(text)
		if err != nil || r.String() != want {
			t.Errorf("Parse(%q) = %v, %v, want %q", text, r, err, want)
			continue
		}
		again, err := Parse(r.String())
		if diff := cmp.Diff(r, again); err != nil || diff != "" {
			t.Errorf("%q is not read back: %v %s", r.String(), err, diff)
		}
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "the rule is empty",
		"thruput >= 1x":                  `unknown metric "thruput"`,
		"end-to-end.p5 <= 1s":            `unknown metric "end-to-end.p5"`,
		"end-to-end.p00 <= 1s":           `unknown metric "end-to-end.p00"`,
		"end-to-end.p99. <= 1s":          `unknown metric "end-to-end.p99."`,
		"p99.9999 <= 1s":                 `unknown metric "p99.9999"`,
		"p100 <= 1s":                     `unknown metric "p100"`,
		"p100.5 <= 1s":                   `unknown metric "p100.5"`,
		"start-to-end.p95 <= 1s":         `unknown metric "start-to-end.p95"`,
		"p99 <= 2x at rate=fast":         "not a whole number",
		"throughput":                     "throughput needs a limit, as >= 0.9x or >= 5000/s",
		"throughput <= 1x":               "can only fail by getting better",
		"p99 >= 1x":                      "can only fail by getting better",
		"throughput >= 5ms":              `limit "5ms" is neither a ratio nor has the unit of throughput`,
		"throughput >= -1x":              "is not a ratio",
		"throughput >= NaNx":             "is not a ratio",
		"throughput >= Infx":             "is not a ratio",
		"rss <= MiB":                     "neither a ratio nor",
		"exactly-once >= 1":              "kept or broken",
		"exactly-once effect 5%":         "no effect size",
		"conformance":                    "needs a level",
		"conformance must at qos=1":      "of the whole broker",
		"p99 <= 2x at":                   "at needs a place",
		"p99 <= 2x at size=1":            `unknown key "size"`,
		"p99 <= 2x at qos=2 qos=1":       "qos is given twice",
		"p99 <= 2x at qos=high":          "not a whole number",
		"p99 <= 2x effect 5":             "not a percentage",
		"p99 <= 2x effect":               "effect needs a percentage",
		"p99 <= 2x sometimes":            `"sometimes" is not understood`,
		"p99 <= 2x at qos=2 at window=1": "at is given twice",
		strings.Repeat("x", MaxText+1):   "longer than",
	} {
		if r, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%.40q) = %v, %v; want an error with %q", text, r, err, want)
		}
	}
}

func TestMatches(t *testing.T) {
	r, err := Parse("p99 <= 2x at qos=1,2 window=20 rate=max")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		qos, window, rate int
		want              bool
	}{{1, 20, 0, true}, {2, 20, 0, true}, {0, 20, 0, false}, {2, 1, 0, false}, {2, 20, 500, false}} {
		if got := r.Matches(test.qos, test.window, 7, 64, test.rate); got != test.want {
			t.Errorf("QoS %d, window %d, rate %d: %v", test.qos, test.window, test.rate, got)
		}
	}
}

func TestQuantile(t *testing.T) {
	for text, want := range map[string]float64{"p95": 0.95, "p99.5": 0.995, "p9999": 0.9999, "p00.1": 0.001, "p99": 0, "p999": 0, "max": 0} {
		r, err := Parse(text + " <= 1s")
		if err != nil || r.Quantile() != want {
			t.Errorf("%s: %v, %v; want %v", text, r.Quantile(), err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range Metrics() {
		f.Add(m + " >= 1x at qos=1")
	}
	f.Add("p99.5 <= 1x at rate=max")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(r.String()); err != nil || again.String() != r.String() {
			t.Errorf("%q became %q, which is read as %v, %v", text, r.String(), again, err)
		}
	})
}
