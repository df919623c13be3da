package history

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"inflight/report/internal/synth"
)

// noisy makes values around levels, each for so many runs, with a relative noise.
func noisy(seed uint64, noise float64, levels ...[2]float64) []float64 {
	rng := rand.New(rand.NewPCG(seed, 1))
	var out []float64
	for _, l := range levels {
		for range int(l[0]) {
			out = append(out, l[1]*math.Exp(noise*rng.NormFloat64()))
		}
	}
	return out
}

func TestChangesAreFoundWhereTheyArePlanted(t *testing.T) {
	for _, test := range []struct {
		why    string
		values []float64
		want   []int
	}{
		{"nothing", nil, nil},
		{"too few to tell", noisy(1, 0.01, [2]float64{2, 100}, [2]float64{3, 50}), nil},
		{"one step down", noisy(2, 0.05, [2]float64{10, 100}, [2]float64{10, 70}), []int{10}},
		{"down and up again", noisy(3, 0.04, [2]float64{12, 100}, [2]float64{12, 70}, [2]float64{12, 100}), []int{12, 24}},
		{"an outlier is no change", append(noisy(4, 0.03, [2]float64{9, 100}), append([]float64{20}, noisy(5, 0.03, [2]float64{9, 100})...)...), nil},
		{"all the same", slices.Repeat([]float64{7}, 30), nil},
	} {
		if got := changes(test.values); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.why, got, test.want)
		}
	}
}

// The level of the test is what it says: of histories without a change about one in twenty shows one.
func TestFalseChangesAreRare(t *testing.T) {
	found := 0
	for seed := range uint64(100) {
		if len(changes(noisy(seed, 0.1, [2]float64{20, 100}))) > 0 {
			found++
		}
	}
	if found > 11 { // 5 expected; more than 11 has a probability below 0.4 %
		t.Errorf("%d of 100 histories without a change have one", found)
	}
}

func build(t *testing.T, rates []float64) []Entry {
	t.Helper()
	var data []byte
	for i, rate := range rates {
		r := synth.Run{Name: "ci", Windows: []int{20}, Passes: 1, Blocks: 2, Arms: []synth.Arm{{Target: "x", Rate: func(int, int) float64 { return rate }}}}.Result()
		r.Started = r.Started.Add(time.Duration(i) * time.Hour)
		entries, err := Of(r, fmt.Sprintf("c%02d", i))
		if err != nil {
			t.Fatal(err)
		}
		if i == 4 {
			entries[0].Incorrect = true
		}
		if data, err = Append(data, entries); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestTableAndChart(t *testing.T) {
	series := SeriesOf(build(t, noisy(1, 0.02, [2]float64{8, 5000}, [2]float64{8, 3000})), Throughput)
	if len(series) != 1 || len(series[0].Changes) != 1 || series[0].Points[series[0].Changes[0]].Commit != "c08" {
		t.Fatalf("series %+v", series)
	}
	var b bytes.Buffer
	if err := Table(&b, series, Throughput, 12); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ci, arm A, QoS 2, 20 in flight", "c04   ~~4,990/s~~  INCORRECT", "change: -", Method} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "c03") {
		t.Errorf("more than the last 12:\n%s", b.String())
	}
	svg := Chart(series, Throughput)
	if err := xml.Unmarshal(svg, new(struct{})); err != nil || strings.Count(string(svg), `class="change"`) != 1 || !strings.Contains(string(svg), `class="cross"`) {
		t.Errorf("chart, %v:\n%s", err, svg)
	}
}

func TestWhatDoesNotBelongIntoAHistory(t *testing.T) {
	r := synth.Fixtures()["one-arm"]
	if _, err := Of(r, ""); err == nil {
		t.Error("a run without a commit")
	}
	r.Partial = true
	if _, err := Of(r, "c"); err == nil || !strings.Contains(err.Error(), "partial") {
		t.Errorf("a partial run: %v", err)
	}
	for data, want := range map[string]string{
		"{}":                              `line 1: schema "", want`,
		"\n{":                             "line 2: is not an entry",
		`{"schema":"inflight.history/2"}`: "newer inflight",
		">>>>>>> x":                       "merge conflict",
	} {
		if _, err := Decode([]byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", data, err, want)
		}
	}
}
