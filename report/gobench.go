package report

import (
	"fmt"
	"io"
	"slices"
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
// A search for the highest rate is BenchmarkFindMaxQoS2/.../limit=p99<20ms, a line for each pass: as many iterations as it had
// trials, the highest rate at which the limit held as holds-msg/s, and the lowest at which it broke as breaks-msg/s. The trials
// are no samples of anything that another run has; result.json and CSV have them.
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
		{UnitMetadataKey: benchfmt.UnitMetadataKey{Unit: "holds-msg/s", Key: "better"}, OrigUnit: "holds-msg/s", Value: "higher"},
		{UnitMetadataKey: benchfmt.UnitMetadataKey{Unit: "breaks-msg/s", Key: "better"}, OrigUnit: "breaks-msg/s", Value: "higher"},
	} {
		if len(r.Searches) == 0 && m.Unit != "msg/s" {
			continue
		}
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
		for i := range r.Searches {
			s := &r.Searches[i]
			if s.Arm != a.Name || s.Low == nil && s.High == nil || incorrect(r, s) {
				continue
			}
			if err := writer.Write(benchSearch(keys, s)); err != nil {
				return err
			}
		}
	}
	return nil
}

// incorrect reports whether the cell that a search belongs to, with the acknowledgements and deliveries of its trials, is.
func incorrect(r *result.Result, s *result.Search) bool {
	return slices.ContainsFunc(r.Cells, func(c result.Cell) bool {
		return c.Incorrect() && !c.Control && c.Arm == s.Arm && c.Pass == s.Pass && c.RatePerS == 0 && c.QoS == s.QoS && c.Window == s.Window &&
			c.Connections == s.Connections && c.Payload == s.Payload && c.Sizes == s.Sizes
	})
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
	rate := strconv.FormatFloat(c.RatePerS, 'f', -1, 64)
	if c.Ramp != "" {
		rate = word(c.Ramp)
	}
	name += benchPoint(c.Window, c.Connections, c.Payload, c.Sizes)
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

// benchPoint is the part of a name that tells the point.
func benchPoint(window, connections, payload int, sizes string) string {
	size := strconv.Itoa(payload)
	if sizes != "" {
		size = word(sizes)
	}
	return fmt.Sprintf("/window=%d/connections=%d/payload=%s", window, connections, size)
}

func benchSearch(keys []benchfmt.Config, s *result.Search) *benchfmt.Result {
	name := fmt.Sprintf("FindMaxQoS%d", s.QoS) + benchPoint(s.Window, s.Connections, s.Payload, s.Sizes) + "/limit=" + word(s.Limit)
	res := &benchfmt.Result{Config: keys, Name: benchfmt.Name(name), Iters: max(1, len(s.Trials))}
	for _, found := range []struct {
		rate *int
		unit string
	}{{s.Low, "holds-msg/s"}, {s.High, "breaks-msg/s"}} {
		if found.rate != nil {
			res.Values = append(res.Values, benchfmt.Value{Value: float64(*found.rate), Unit: found.unit})
		}
	}
	return res
}
