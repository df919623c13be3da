package figure

import (
	"encoding/xml"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func ptr(v float64) *float64 { return &v }

// wellFormed parses a figure and returns the numbers in it, of which none may be NaN or outside any reason.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Errorf("no number in\n%s", svg)
	}
	for _, m := range regexp.MustCompile(` c[xy]="([^"]*)"`).FindAllStringSubmatch(svg, -1) {
		if v, err := strconv.ParseFloat(m[1], 64); err != nil || v < 0 || v > width {
			t.Errorf("a point at %q, outside the figure", m[1])
		}
	}
}

func TestCharts(t *testing.T) {
	for name, c := range map[string]Chart{
		"one point":         {X: Axis{Scale: Log}, Y: Axis{Scale: Log}, Series: []Series{{Points: []Point{{X: 20, Y: 5}}}}},
		"a flat line":       {Y: Axis{Scale: Log}, Series: []Series{{Points: []Point{{X: 1, Y: 5}, {X: 2, Y: 5}}}}},
		"huge intervals":    {Y: Axis{Scale: Log}, Series: []Series{{Points: []Point{{X: 1, Y: 5, Low: ptr(1e-300), High: ptr(1e300)}, {X: 2, Y: 6}}}}},
		"zero, linear":      {Series: []Series{{Points: []Point{{X: 0, Y: 0}}}}},
		"the last nine":     {X: Axis{Scale: Tail}, Y: Axis{Scale: Log}, Series: []Series{{Points: []Point{{X: 0.5, Y: 1}, {X: 1, Y: 9}}}}},
		"text is no markup": {Alt: `"><script>`, X: Axis{Label: "<b>"}, Series: []Series{{Points: []Point{{X: 1, Y: 1, Text: `" onload="x`, Struck: true}}}}},
		"a band":            {Y: Axis{Scale: Log}, Series: []Series{{Points: []Point{{X: 1, Y: 5}, {X: 9, Y: 7}}}}, Band: &Band{X: []float64{1, 9}, Low: []float64{4, 1e-9}, High: []float64{6, 1e9}}},
		"many":              {Series: []Series{{Arm: 7, Plain: true, Points: make([]Point, 5000)}}},
	} {
		svg := c.SVG()
		if svg == "" {
			t.Errorf("%s: nothing drawn", name)
			continue
		}
		wellFormed(t, svg)
		if len(svg) > 100_000 {
			t.Errorf("%s: %d bytes", name, len(svg))
		}
		if strings.Contains(svg, "<script>") || strings.Contains(svg, "<b>") || strings.Contains(svg, ` onload=`) && !strings.Contains(svg, "&#34; onload=") {
			t.Errorf("%s: markup from text:\n%s", name, svg)
		}
	}
	for name, c := range map[string]Chart{
		"no series":            {},
		"no points":            {Series: []Series{{}}},
		"nothing above zero":   {Y: Axis{Scale: Log}, Series: []Series{{Points: []Point{{X: 1, Y: 0}}}}},
		"nothing that is real": {Series: []Series{{Points: []Point{{X: 1, Y: math.NaN()}, {X: 2, Y: math.Inf(1)}}}}},
	} {
		if svg := c.SVG(); svg != "" {
			t.Errorf("%s: drew %s", name, svg)
		}
	}
}

// A result may come from anyone: its numbers must not keep an axis busy for ever.
func TestAbsurdNumbersEnd(t *testing.T) {
	for _, scale := range []Scale{Linear, Log, Tail} {
		for _, v := range []float64{1e308, -1e308, 1e-320, 1e17, -1e17, 0} {
			c := Chart{X: Axis{Scale: scale}, Y: Axis{Scale: scale}, Series: []Series{{Points: []Point{
				{X: v, Y: v, Low: ptr(-1e308), High: ptr(1e308)}, {X: 1, Y: 1, Low: ptr(1e-320), High: ptr(1e300)}, {X: 1 + v, Y: v},
			}}}}
			wellFormed(t, c.SVG())
			f := Forest{Rows: []Row{{Ratio: math.Abs(v), Low: ptr(-1e308), High: ptr(1e308)}, {Ratio: 1}}}
			wellFormed(t, f.SVG())
		}
	}
}

func TestForest(t *testing.T) {
	control := &Interval{Low: 0.9, High: 1.1, Text: "control"}
	f := Forest{Rows: []Row{
		{Label: "1", Ratio: 1.02, Low: ptr(0.97), High: ptr(1.08), Text: "a", Control: control},
		{Label: "far off", Ratio: 23, Low: ptr(1e-200), High: ptr(1e200), Text: "b", Struck: true, Control: control},
		{Label: "no interval", Ratio: 0.5},
		{Label: "again", Ratio: 1, Control: control},
	}}
	svg := f.SVG()
	wellFormed(t, svg)
	if strings.Count(svg, `class="p"`) != 4 || !strings.Contains(svg, `class="cross"`) || strings.Count(svg, `class="band"`) != 2 {
		t.Errorf("not everything drawn:\n%s", svg)
	}
	if svg := (&Forest{Rows: []Row{{Label: "heading"}}}).SVG(); svg != "" {
		t.Errorf("drew %s", svg)
	}
}

func TestRoundDown(t *testing.T) {
	for v, want := range map[float64]float64{1: 1, 1.9: 1, 2: 2, 4.9: 2, 99: 50, 100: 100, 0.03: 0.02, -3: -5, -5: -5, -51: -100} {
		if got := roundDown(v); math.Abs(got-want) > 1e-9*math.Abs(want) {
			t.Errorf("roundDown(%v) = %v, want %v", v, got, want)
		}
	}
}
