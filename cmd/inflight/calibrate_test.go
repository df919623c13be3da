package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"inflight/report/stat"
	"inflight/runner/machine"
	"inflight/runner/result"
)

// What the two runs say about the machine is what is stored, printed and quoted by the next run.
func TestCalibrationOf(t *testing.T) {
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cpu, waited := 0.5, int64(3e6)
	ceilings := &result.Result{Started: started, Environment: result.Environment{Cores: 2, GOMAXPROCS: 2}, Cells: []result.Cell{
		{Arm: "A", QoS: 1, Window: 256, Connections: 10, Payload: 256, ThroughputPerS: 900_000, Messages: 450_000, GeneratorCPU: &cpu},
		{Arm: "A", QoS: 2, Window: 256, Connections: 10, Payload: 256, ThroughputPerS: 700_000, Messages: 350_000},
	}}
	itself := &result.Result{Arms: []result.Arm{{Name: "A", Target: "x"}, {Name: "B", Target: "x"}}}
	for i, rate := range []float64{1000, 1010, 990, 1005} {
		for _, window := range []int{1, 20} {
			for j, arm := range []string{"A", "B"} {
				c := result.Cell{Arm: arm, Pass: 1 + i/2, Slot: 1 + (i/2+j)%2, QoS: 2, Window: window, Connections: 1, Payload: 256, ThroughputPerS: rate, Messages: 1000, DurationNS: 1e9, SchedLatencyP99: &waited}
				for run := range 6 {
					c.Blocks = append(c.Blocks, result.Block{Block: 10*(1+i/2) + run/2, DurationNS: 1e9, Messages: 1000, ThroughputPerS: rate * (1 + 0.01*float64((run*7+j*3+i)%5))})
				}
				if i%2 == 0 {
					itself.Cells = append(itself.Cells, c)
				}
			}
		}
	}
	stat.Judge(itself)
	c := calibrationOf(ceilings, itself, "x")
	if len(c.Ceilings) != 2 || *c.Ceilings[0].PerCPUSecond != 900_000 || c.Ceilings[1].PerCPUSecond != nil {
		t.Errorf("ceilings %+v", c.Ceilings)
	}
	if len(c.Noise) != 2 || c.Noise[0].Effect == nil || c.NoiseEffect == nil || *c.NoiseEffect < 1 || *c.NoiseEffect > 1.1 {
		t.Errorf("noise %+v, effect %v", c.Noise, c.NoiseEffect)
	}
	if *c.SchedLatencyP99 != waited || c.Machine != machine.Key(&ceilings.Environment) || !c.Started.Equal(started) {
		t.Errorf("calibration %+v", c)
	}
	var table, data strings.Builder
	if err := printCalibration(&table, c, "table"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  900000     900000", "      ~\n", "x compared with itself", "finds ", "waiting for a processor: p99 3ms"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, &table)
		}
	}
	if err := printCalibration(&data, c, "json"); err != nil || !json.Valid([]byte(data.String())) {
		t.Errorf("%v: %s", err, &data)
	}
	if err := printCalibration(closedPipe{}, c, "table"); err == nil {
		t.Error("a closed pipe is no error")
	}
	c.NoiseEffect = nil
	if got := seen(c); !strings.Contains(got, "too few blocks") {
		t.Errorf("no effect: %s", got)
	}
}

func TestPrintFindings(t *testing.T) {
	var out strings.Builder
	findings := []machine.Finding{{Name: "clock", Status: machine.OK, Text: "fine"}, {Name: "open files", Status: machine.Fail, Text: "at most 3", Hint: "raise it"}}
	if err := printFindings(&out, findings, "table"); err != nil {
		t.Fatal(err)
	}
	if want := "ok    clock       fine\nfail  open files  at most 3\n                  -> raise it\n"; out.String() != want {
		t.Errorf("printed\n%q, want\n%q", out.String(), want)
	}
}
