package main

import (
	"strings"
	"testing"
)

func TestPrintSpread(t *testing.T) {
	var table, data strings.Builder
	all := []spread{{Pin: "off", Rates: []float64{400, 100, 200, 200}}, {Pin: "generator 0, broker 1", Rates: []float64{100, 100, 100, 100}}}
	if err := printSpread(&table, "null", all, "table"); err != nil {
		t.Fatal(err)
	}
	want := `null, QoS 2, 1 connection, window 1: messages per second over 4 starts
CPUs                   lowest  median  highest  highest/lowest  standard deviation of the log
off                    100     200     400      4.00            0.566
generator 0, broker 1  100     100     100      1.00            0.000
`
	if table.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", &table, want)
	}
	if err := printSpread(&data, "null", all, "json"); err != nil || !strings.Contains(data.String(), `"pin": "off"`) {
		t.Errorf("%v: %s", err, &data)
	}
	if err := printSpread(closedPipe{}, "null", all, "table"); err == nil {
		t.Error("a closed pipe is no error")
	}
}

// A target that there is no cluster of is calibrated all the same, and a list of CPUs serves one arm as well as two.
func TestCalibrateScenarios(t *testing.T) {
	for target, want := range map[string]int{"reference": 3, "reference?store=memory": 1, "null": 3, "reference?nodes=5": 3} {
		f := calibrateFlags{target: target, pin: "0,2/1/3"}
		noise, ceiling := f.noiseScenario(), f.ceilingScenario()
		if noise.Nodes != want {
			t.Errorf("%s: %d nodes, want %d", target, noise.Nodes, want)
		}
		if ceiling.Pin != "0,2/1" || noise.Pin != f.pin {
			t.Errorf("%s: pinned to %s and %s", target, ceiling.Pin, noise.Pin)
		}
		if err := noise.Validate(); err != nil {
			t.Error(err)
		}
	}
}
