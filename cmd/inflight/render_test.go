package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"inflight/runner/result"
)

// Every format is the one that was asked for: package report has the tests of what is in it.
func TestPrintResult(t *testing.T) {
	r := &result.Result{
		Schema: result.Schema,
		Scenario: result.Scenario{
			Name: "x", QoS: []int{1}, Windows: []int{20}, Connections: []int{1}, Payloads: []int{64}, Passes: 1, Blocks: 1,
		},
		Arms: []result.Arm{{Name: "A", Target: "null"}},
		Cells: []result.Cell{{
			Arm: "A", Pass: 1, Slot: 1, QoS: 1, Window: 20, Connections: 1, Payload: 64, ThroughputPerS: 54321, Messages: 54321, DurationNS: 1e9,
			Blocks: []result.Block{{Block: 1, Position: 1, DurationNS: 1e9, Messages: 54321, ThroughputPerS: 54321}},
		}},
	}
	for format, is := range map[formatFlag]func(text string) bool{
		formatTable:    func(text string) bool { return strings.Contains(text, "54,321") && !strings.Contains(text, "\x1b") },
		formatMarkdown: func(text string) bool { return strings.Contains(text, "\n| ") || strings.Contains(text, "\n|-") },
		formatGoBench:  func(text string) bool { return strings.Contains(text, "BenchmarkQoS1/window=20") },
		formatProm:     func(text string) bool { return strings.Contains(text, "# TYPE inflight_") },
		formatJSON:     func(text string) bool { return json.Valid([]byte(text)) },
		formatCSV: func(text string) bool {
			rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
			return err == nil && len(rows) == 2
		},
	} {
		var out strings.Builder
		if err := printResult(&out, r, format); err != nil {
			t.Errorf("%s: %v", format, err)
		} else if !is(out.String()) {
			t.Errorf("%s printed:\n%s", format, &out)
		}
		if err := printResult(closedPipe{}, r, format); !errors.Is(err, errClosed) {
			t.Errorf("%s into a closed pipe: %v, want the error of the write", format, err)
		}
	}
}

var errClosed = errors.New("closed")

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, errClosed }
