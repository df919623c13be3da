package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/perf/benchfmt"

	"inflight/runner/result"
)

// GoBench writes every measured run of r as a line of the Go benchmark format, for benchstat and what else reads it: the
// runs of a cell are the samples of one benchmark, such as
//
//	BenchmarkQoS2/window=20/connections=1/payload=256
//
// with ns/op (measured time over messages), msg/s, and p99-ns/ack where a run has enough samples for one. The QoS 0
// control is BenchmarkControl. The arm is a file key that holds its name and its target, so that
//
//	benchstat -col arm FILE        compares the arms of one run
//	benchstat OLD NEW              compares each arm with itself, before and after
//
// The other keys are of the machine and the scenario: runs that differ in one are kept apart by benchstat unless it is told to
// ignore the key. Runs of a cell that is incorrect are left out: a fast wrong number is no sample.
//
// benchstat takes the samples for independent. What it loses is the pairing of the arms within a block, so its intervals
// are wider than those of result.json.
func GoBench(w io.Writer, r *result.Result) error {
	writer := benchfmt.NewWriter(w)
	for _, m := range []benchfmt.UnitMetadata{
		{UnitMetadataKey: benchfmt.UnitMetadataKey{Unit: "msg/s", Key: "better"}, OrigUnit: "msg/s", Value: "higher"},
	} {
		if err := writer.Write(&m); err != nil {
			return err
		}
	}
	for _, a := range r.Arms {
		keys := benchKeys(r, &a)
		for i := range r.Cells {
			c := &r.Cells[i]
			if c.Arm != a.Name || c.Incorrect() {
				continue
			}
			for j := range c.Blocks {
				if c.Blocks[j].Messages <= 0 || c.Blocks[j].DurationNS <= 0 {
					continue
				}
				if err := writer.Write(benchLine(keys, c, &c.Blocks[j])); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// word makes text fit for a part of a benchmark's name.
func word(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || r == '/' || r == '=' || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, text)
}

func benchKeys(r *result.Result, a *result.Arm) []benchfmt.Config {
	e, s := &r.Environment, &r.Scenario
	var keys []benchfmt.Config
	for _, k := range [][2]string{
		{"goos", e.OS},
		{"goarch", e.Arch},
		{"cpu", e.CPU},
		{"cores", strconv.Itoa(e.Cores)},
		{"scenario", s.Name},
		{"nodes", strconv.Itoa(s.Nodes)},
		{"replicas", strconv.Itoa(s.Replicas)},
		{"arm", a.Name + " " + a.Label()},
	} {
		value := strings.Join(strings.Fields(k[1]), " ") // a value is the rest of its line
		if value != "" && value != "0" {
			keys = append(keys, benchfmt.Config{Key: k[0], Value: []byte(value), File: true})
		}
	}
	return keys
}

func benchLine(keys []benchfmt.Config, c *result.Cell, b *result.Block) *benchfmt.Result {
	name := fmt.Sprintf("QoS%d", c.QoS)
	if c.Control {
		name = "Control"
	}
	payload, rate := strconv.Itoa(c.Payload), strconv.FormatFloat(c.RatePerS, 'f', -1, 64)
	if c.Sizes != "" {
		payload = word(c.Sizes)
	}
	if c.Ramp != "" {
		rate = word(c.Ramp)
	}
	name += fmt.Sprintf("/window=%d/connections=%d/payload=%s", c.Window, c.Connections, payload)
	if c.RatePerS > 0 {
		name += "/rate=" + rate
	}
	res := &benchfmt.Result{Config: keys, Name: benchfmt.Name(name), Iters: int(b.Messages)}
	res.Values = []benchfmt.Value{
		{Value: float64(b.DurationNS) / float64(b.Messages), Unit: "ns/op"},
		{Value: b.ThroughputPerS, Unit: "msg/s"},
	}
	if b.P99 != nil && !c.Control && c.QoS > 0 { // at QoS 0 it is that of the fences
		res.Values = append(res.Values, benchfmt.Value{Value: float64(*b.P99), Unit: "p99-ns/ack"})
	}
	return res
}
