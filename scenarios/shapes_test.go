package scenarios

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSizes(t *testing.T) {
	for _, test := range []struct {
		why, text, spelling    string
		low, high, mean, rarer int // rarer: how many of the table are of the size high
	}{
		{"a range is uniform", "64..4096", "64..4096", 64, 4096, 2080, -1},
		{"units, and the word", "uniform:64B..4KiB", "64..4096", 64, 4096, 2080, -1},
		{"most are small, few are large", "lognormal:64..4096", "lognormal:64..4096", 64, 4096, 702, -1},
		{"a mix has its proportions", "256*9+4KiB", "256*9+4096*1", 256, 4096, 640, 410},
		{"sizes without weights are equally likely", "100+300", "100*1+300*1", 100, 300, 200, 2048},
	} {
		var s Scenario
		if err := s.Set("payload", test.text); err != nil {
			t.Errorf("%s: %v", test.why, err)
			continue
		}
		if got := s.Get("payload"); got != test.spelling {
			t.Errorf("%s: spelled %s, want %s", test.why, got, test.spelling)
		}
		full := s.WithDefaults()
		p := full.Points()[0]
		table, err := p.SizeTable(1)
		if err != nil || len(table) != SizesPeriod {
			t.Fatalf("%s: %d sizes, %v", test.why, len(table), err)
		}
		if p.Payload != test.mean || slices.Min(table) != test.low || slices.Max(table) != test.high {
			t.Errorf("%s: mean %d, from %d to %d; want %d, from %d to %d", test.why, p.Payload, slices.Min(table), slices.Max(table), test.mean, test.low, test.high)
		}
		if n := count(table, test.high); test.rarer >= 0 && n != test.rarer {
			t.Errorf("%s: %d of %d have the size %d, want %d", test.why, n, SizesPeriod, test.high, test.rarer)
		}
		again, _ := p.SizeTable(1)
		other, _ := p.SizeTable(2)
		if !slices.Equal(table, again) || slices.Equal(table, other) {
			t.Errorf("%s: the order must be that of the seed", test.why)
		}
		slices.Sort(table)
		slices.Sort(other)
		if !slices.Equal(table, other) {
			t.Errorf("%s: another seed has other sizes, not only another order", test.why)
		}
	}
}

func count(list []int, n int) (times int) {
	for _, v := range list {
		if v == n {
			times++
		}
	}
	return times
}

// Shapes that cannot be are refused by name, whether they come from a file, a flag or code.
func TestShapeProblems(t *testing.T) {
	for _, test := range []struct{ key, value, want string }{
		{"payload", "64..64", "the first size must be below the second"},
		{"payload", "4096..64", "the first size must be below the second"},
		{"payload", "8..64", "payload 8 is out of range"},
		{"payload", "64..x", `payload "x" is not a size`},
		{"payload", "lognormal:64", "write the smallest and the largest size, as lognormal:64..4KiB"},
		{"payload", "normal:64..128", `payload "normal:64" is not a size`},
		{"payload", "256*0+64", "a weight is a whole number from 1"},
		{"payload", "256*1000+64", "weights of 1000 together at most"},
		{"payload", "256*2", "a mix has two sizes or more"},
		{"payload", "64..128,64..128", "payload 64..128 is listed twice"},
		{"rate", "5..5", "rate 5..5 is no ramp: write 5"},
		{"rate", "0..5", "rate 0 is out of range"},
		{"rate", "5..x", `rate "x" is not a whole number`},
		{"rate", "5..6,5..6", "rate 5..6 is listed twice"},
		{"seed", "0", "seed 0 is out of range"},
		{"find-max", "20ms", "write the percentile of the response time and its bound, as p99<20ms"},
		{"find-max", "p99<20", "write the percentile"},
		{"find-max", "p100<20ms", "p100 is out of range"},
		{"find-max", "p99<0s", "0s is out of range"},
	} {
		var s Scenario
		err := s.Set(test.key, strings.Split(test.value, ",")...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %s: %v, want %q", test.key, test.value, err, test.want)
		}
	}
	arms := []Arm{{Target: "null"}}
	for _, test := range []struct {
		s    Scenario
		want string
	}{
		{Scenario{Arms: arms, Ramps: []Ramp{{5, 5}}}, "is no ramp"},
		{Scenario{Arms: arms, Ramps: []Ramp{{5, 6}}, Messages: 10}, "a ramp lasts as long as the duration"},
		{Scenario{Arms: arms, Sizes: []string{"uniform:64..128"}}, "is not written as 64..128"},
		{Scenario{Arms: arms, FindMax: Limit{99, time.Second}, Rates: []int{5}}, "the search tries rates of its own"},
		{Scenario{Arms: arms, FindMax: Limit{99, time.Second}, QoS: []int{0}}, "find-max at QoS 0"},
		{Scenario{Arms: arms, FindMax: Limit{99, time.Second}, Messages: 5}, "find-max with messages"},
		{Scenario{Arms: arms, FindMax: Limit{100, time.Second}}, "p100 is out of range"},
		{Scenario{Arms: arms, Sizes: []string{"64"}}, "a mix has two sizes or more"},
	} {
		if err := test.s.Validate(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.s, err, test.want)
		}
	}
}

func TestRampsAndSizesAreFurtherPoints(t *testing.T) {
	s := Scenario{Windows: []int{1}}
	for _, setting := range []Setting{{"rate", []string{"max", "1000..3000", "500"}}, {"payload", []string{"100+300", "64"}}} {
		if err := s.Set(setting.Key, setting.Values...); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Get("rate"); got != "max,500,1000..3000" {
		t.Errorf("rates %s", got)
	}
	s = s.WithDefaults()
	if err := (&Scenario{Arms: []Arm{{Target: "null"}}, Rates: s.Rates, Ramps: s.Ramps, Payloads: s.Payloads, Sizes: s.Sizes}).Validate(); err != nil {
		t.Error(err)
	}
	want := []Point{
		{QoS: 2, Window: 1, Connections: 1, Payload: 64},
		{QoS: 2, Window: 1, Connections: 1, Payload: 64, Rate: 500},
		{QoS: 2, Window: 1, Connections: 1, Payload: 64, Rate: 1000, RampTo: 3000},
		{QoS: 2, Window: 1, Connections: 1, Payload: 200, Sizes: "100*1+300*1"},
		{QoS: 2, Window: 1, Connections: 1, Payload: 200, Sizes: "100*1+300*1", Rate: 500},
		{QoS: 2, Window: 1, Connections: 1, Payload: 200, Sizes: "100*1+300*1", Rate: 1000, RampTo: 3000},
	}
	if diff := cmp.Diff(want, s.Points()); diff != "" {
		t.Error(diff)
	}
	if p := want[5]; p.MeanRate() != 2000 || p.Ramp() != "1000..3000" || want[4].MeanRate() != 500 || want[4].Ramp() != "" {
		t.Errorf("%v: a mean of %g, ramp %q", p, p.MeanRate(), p.Ramp())
	}
}
