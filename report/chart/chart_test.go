package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"strings"
	"testing"

	"inflight/report/internal/synth"
	"inflight/runner/result"
)

func TestSameBytes(t *testing.T) {
	for _, m := range []Metric{Throughput, P99} {
		r := synth.Fixtures()["two-arms"]
		for name, draw := range map[string]func(*result.Result, Metric) ([]byte, error){"svg": SVG, "png": PNG} {
			if name == "png" && (synth.Race || m == P99) {
				continue
			}
			first, err := draw(r, m)
			if err != nil {
				t.Fatal(err)
			}
			second, err := draw(r, m)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(first, second) {
				t.Errorf("%s of metric %d differs from one call to the next", name, m)
			}
		}
	}
}

// texts returns every text of an SVG in order, and fails the test when it is no XML.
func texts(t *testing.T, svg []byte) []string {
	t.Helper()
	var out []string
	dec := xml.NewDecoder(bytes.NewReader(svg))
	inText := false
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		switch tok := token.(type) {
		case xml.StartElement:
			inText = tok.Name.Local == "text"
		case xml.CharData:
			if inText {
				out = append(out, string(tok))
			}
		case xml.EndElement:
			inText = false
		}
	}
}

func TestWhatIsWritten(t *testing.T) {
	tests := []struct {
		fixture string
		metric  Metric
		want    []string
		not     []string
	}{
		{
			"two-arms", Throughput,
			[]string{
				"What does a pipelined QoS 2 path do that a stop-and-wait one does not?", "messages per second, QoS 2, 1 connection, 256-byte payloads",
				"A: reference?store=staged&pipeline=off (0.1.0)", "B: reference?store=staged (0.1.0)", "1", "10", "20", "256", "1k", "10k",
				"in flight: exchanges outstanding per connection", "messages per second",
			},
			[]string{"Hollow", "Absent"},
		},
		{"two-arms", P99, []string{"p99 of the acknowledgement time", "10 ms", "100 ms"}, nil},
		{"one-arm", Throughput, []string{"Does throughput rise with what is in flight?", "A: reference?store=staged (0.1.0)"}, nil},
		{"one-arm", P99, []string{"How long does an acknowledgement take as more is in flight?"}, nil},
		{"incorrect", Throughput, []string{"Hollow, crossed markers: the broker broke its contract there; the number does not count."}, nil},
		{"no-intervals", P99, []string{"Absent, for too few samples: A at 4 points and B at 1 point.", "1"}, []string{"Bars:"}},
		{"long-names", Throughput, []string{"B: nats-server@v2.15.3?nodes=3&replicas=3"}, []string{"tcp://broker-one.staging.eu-central-1.messaging.example.com:1883,"}},
		{"many-points", Throughput, []string{"QoS 1, 1 connection, 256-byte payloads", "QoS 2, 100 connections, 256-byte payloads"}, nil},
		{"itself", Throughput, []string{"20"}, nil},
		{"six-arms", Throughput, []string{"F: nats-server@v2.14.10"}, nil},
	}
	fixtures := synth.Fixtures()
	for _, test := range tests {
		t.Run(fmt.Sprintf("%s %d", test.fixture, test.metric), func(t *testing.T) {
			svg, err := SVG(fixtures[test.fixture], test.metric)
			if err != nil {
				t.Fatal(err)
			}
			got := texts(t, svg)
			all := "\n" + strings.Join(got, "\n") + "\n"
			for _, want := range test.want {
				if !strings.Contains(all, "\n"+want+"\n") {
					t.Errorf("no text %q in %q", want, got)
				}
			}
			for _, not := range test.not {
				if strings.Contains(all, not) {
					t.Errorf("text with %q in %q", not, got)
				}
			}
		})
	}
}

func TestConnectionsAreTheAxisAtASingleWindow(t *testing.T) {
	run := synth.Run{
		Arms: []synth.Arm{{Target: "x", Rate: func(int, int) float64 { return 100 }}}, Windows: []int{20}, Conns: []int{1, 10, 100}, Passes: 1, Blocks: 2,
	}
	svg, err := SVG(run.Result(), Throughput)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(texts(t, svg), "\n")
	for _, want := range []string{"\nconnections\n", "QoS 2, 20 in flight, 256-byte payloads", "\n100\n"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in %q", want, all)
		}
	}
}

// Nothing that a file may hold makes drawing panic or fail.
func TestOddResults(t *testing.T) {
	base := func() *result.Result { return synth.Fixtures()["two-arms"] }
	tests := []struct {
		name string
		odd  func(*result.Result)
	}{
		{"no cells", func(r *result.Result) { r.Cells = nil }},
		{"no arms", func(r *result.Result) { r.Arms = nil }},
		{"all rates zero", func(r *result.Result) {
			for i := range r.Cells {
				r.Cells[i].ThroughputPerS = 0
			}
		}},
		{"window zero", func(r *result.Result) { r.Cells[0].Window = 0 }},
		{"one cell", func(r *result.Result) { r.Cells = r.Cells[:1] }},
		{"rates fifteen decades apart", func(r *result.Result) { r.Cells[0].ThroughputPerS = 1e15 }},
		{"no target names", func(r *result.Result) { r.Arms[0] = result.Arm{Name: "A"} }},
		{"a question without spaces", func(r *result.Result) { r.Scenario.Question = strings.Repeat("x", 500) }},
		{"twenty panels", func(r *result.Result) {
			for i := range r.Cells {
				r.Cells[i].Payload = i % 20
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := base()
			test.odd(r)
			for _, m := range []Metric{Throughput, P99} {
				svg, err := SVG(r, m)
				if err != nil {
					t.Fatal(err)
				}
				texts(t, svg)
				Alt(r, m)
			}
		})
	}
}

func TestPNGIsNotBlank(t *testing.T) {
	data, err := PNG(synth.Fixtures()["two-arms"], P99)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	colours := map[[3]uint32]int{}
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, b, _ := img.At(x, y).RGBA()
			colours[[3]uint32{r >> 8, g >> 8, b >> 8}]++
		}
	}
	for i, s := range styles[:2] {
		if colours[[3]uint32{uint32(s.color.R), uint32(s.color.G), uint32(s.color.B)}] < 200 {
			t.Errorf("arm %d is hardly to be seen", i)
		}
	}
	if colours[[3]uint32{255, 255, 255}] < b.Dx()*b.Dy()/2 {
		t.Error("the background is not white")
	}
}

func TestTicks(t *testing.T) {
	labels := func(low, high float64) string {
		var out []string
		for _, tick := range yTicks(low, high, shortTime, 300) {
			if tick.Label != "" {
				out = append(out, tick.Label)
			}
		}
		return strings.Join(out, ", ")
	}
	tests := []struct{ name, got, want string }{
		{"one decade", labels(1e6, 1e7), "1 ms, 2 ms, 5 ms, 10 ms"},
		{"units change", labels(5e5, 2e6), "500 µs, 1 ms, 2 ms"},
		{"many decades", labels(1e3, 1e10), "1 µs, 10 µs, 100 µs, 1 ms, 10 ms, 100 ms, 1 s, 10 s"},
		{"thousands", shortRate(20_000), "20k"},
		{"millions", shortRate(2e6), "2M"},
		{"hundreds", shortRate(500), "500"},
		{"fractions", shortRate(0.5), "0.5"},
		{"below", fmt.Sprint(niceBelow(579), niceBelow(500), niceBelow(0.011)), "500 500 0.01"},
		{"above", fmt.Sprint(niceAbove(18_051), niceAbove(20_000), niceAbove(0.011)), "20000 20000 0.02"},
	}
	for _, test := range tests {
		if test.got != test.want {
			t.Errorf("%s: %q, want %q", test.name, test.got, test.want)
		}
	}
	crowded := xTicks([]float64{1, 100, 101, 102, 256})
	var shown []string
	for _, tick := range crowded {
		shown = append(shown, tick.Label)
	}
	if got := strings.Join(shown, "|"); got != "1|100|||256" {
		t.Errorf("labels of crowded windows: %q", got)
	}
}
