package page

import (
	"bytes"
	"encoding/base64"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"inflight/report/internal/synth"
	"inflight/report/stat"
	"inflight/runner/result"
)

func model(t *testing.T, name string) *Model {
	t.Helper()
	r := synth.Fixtures()[name]
	return drawn(r)
}

func drawn(r *result.Result) *Model {
	stat.Judge(r)
	m := New(r)
	m.Draw(r, nil)
	return m
}

var charts = Charts{ThroughputAlt: "throughput", P99Alt: "p99"}

func rendered(t *testing.T, m *Model) string {
	t.Helper()
	var b bytes.Buffer
	if err := m.HTML(&b, []Download{{"result.json", "application/json", []byte(`{"schema":"inflight.result/1"}`)}}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestHeadline(t *testing.T) {
	edit := func(f func(r *result.Result)) *Model {
		r := synth.Fixtures()["two-arms"]
		f(r)
		stat.Judge(r)
		return New(r)
	}
	tests := []struct {
		name  string
		model *Model
		state string
		want  []string
	}{
		{"faster", model(t, "two-arms"), stat.Better, []string{"B is faster than A at 1, 10, 20 and 256 in flight: 1.35 to 23.1 times the throughput."}},
		{"incorrect and partial", model(t, "incorrect"), stat.Incorrect, []string{
			"Partial result: node n2 of B ended: exit status 2.",
			"Incorrect at 256 in flight: a broker broke its contract there, and its numbers are struck out.",
			"B is faster than A at 1, 10 and 20 in flight: 1.37 to 11.6 times the throughput.",
		}},
		{"one arm", model(t, "one-arm"), measured, []string{"A reaches 18,328 messages per second at 256 in flight, with a p99 of 22.5 ms."}},
		{"no intervals", model(t, "no-intervals"), stat.Inconclusive, []string{"Inconclusive at 1, 10, 20 and 256 in flight: 1.34 to 22.6 times the throughput, from too few blocks for an interval."}},
		{"itself", model(t, "itself"), stat.Same, []string{"The same throughput at 20 in flight, within 5 %."}},
		{"slower", edit(func(r *result.Result) { r.Arms[0], r.Arms[1] = r.Arms[1], r.Arms[0] }), stat.Worse, []string{"A is slower than B at 1, 10, 20 and 256 in flight: 0.043 to 0.74 times the throughput."}},
		{"slower, which only the points together show", edit(func(r *result.Result) {
			same := synth.Run{Seed: 9, Windows: []int{1, 10, 20, 256}, Passes: 2, Blocks: 3, Noise: 0.08, Arms: []synth.Arm{
				{Target: "x@1", Rate: func(int, int) float64 { return 4_000 }}, {Target: "x@2", Rate: func(int, int) float64 { return 3_600 }},
			}}
			*r = *same.Result()
		}), stat.Worse, []string{
			"Inconclusive at 1, 10, 20 and 256 in flight: 0.88 to 0.94 times the throughput, not told apart from noise.",
			"B is slower than A over all points together: 0.92 times the throughput, [0.89, 0.95].",
		}},
		{"nothing", edit(func(r *result.Result) { r.Cells = nil }), measured, []string{"Nothing was measured."}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.model.State != test.state {
				t.Errorf("state %q, want %q", test.model.State, test.state)
			}
			if got, want := strings.Join(test.model.Headline, "\n"), strings.Join(test.want, "\n"); got != want {
				t.Errorf("headline\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestWarningsAreSaidOnce(t *testing.T) {
	m := model(t, "no-intervals")
	all := strings.Join(m.Warnings, "\n")
	if strings.Count(all, "no interval: ") != 1 || !strings.Contains(all, "everywhere: no interval: 2 blocks in 2 passes") {
		t.Errorf("warnings:\n%s", all)
	}
}

// A reservation says of which arm and where, as shortly as it can.
func TestWarningsSayWhere(t *testing.T) {
	const b, c = "B", "C"
	at := func(qos, window int) stat.Point {
		return stat.Point{QoS: qos, Window: window, Connections: 1, Payload: 64}
	}
	tests := []struct {
		name   string
		points []stat.Point
		arms   []string
		warned []place
		want   string
	}{
		{"one of some windows", []stat.Point{at(1, 1), at(1, 10)}, []string{b}, []place{{b, at(1, 10)}}, "at 10 in flight: x"},
		{"everywhere", []stat.Point{at(1, 1), at(1, 10)}, []string{b}, []place{{b, at(1, 1)}, {b, at(1, 10)}}, "everywhere: x"},
		{"a whole group", []stat.Point{at(1, 1), at(1, 10), at(2, 1)}, []string{b}, []place{{b, at(1, 1)}, {b, at(1, 10)}}, "at QoS 1, 1 connection, 64-byte payloads: x"},
		{"parts of groups", []stat.Point{at(1, 1), at(1, 10), at(2, 1), at(2, 10)}, []string{b}, []place{{b, at(1, 1)}, {b, at(2, 10)}}, "at QoS 1, 1 connection, 64-byte payloads, 1 in flight; at QoS 2, 1 connection, 64-byte payloads, 10 in flight: x"},
		{"one of two arms", []stat.Point{at(1, 1), at(1, 10)}, []string{b, c}, []place{{c, at(1, 1)}, {c, at(1, 10)}}, "C/A everywhere: x"},
		{"both arms", []stat.Point{at(1, 1), at(1, 10)}, []string{b, c}, []place{{b, at(1, 1)}, {c, at(1, 1)}}, "at 1 in flight: x"},
		{"both arms, not alike", []stat.Point{at(1, 1), at(1, 10)}, []string{b, c}, []place{{b, at(1, 1)}, {c, at(1, 10)}}, "B/A at 1 in flight; C/A at 10 in flight: x"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := &result.Result{Arms: []result.Arm{{Name: "A"}}}
			for _, arm := range test.arms {
				r.Arms = append(r.Arms, result.Arm{Name: arm})
				for _, p := range test.points {
					k := result.Comparison{Base: "A", Arm: arm, Metric: stat.Throughput, QoS: p.QoS, Window: p.Window, Connections: p.Connections, Payload: p.Payload}
					if slices.Contains(test.warned, place{arm, p}) {
						k.Warnings = []result.Warning{{Code: "c", Text: "x"}}
					}
					r.Comparisons = append(r.Comparisons, k)
				}
			}
			if got := warnings(r); len(got) != 1 || got[0] != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// The control belongs to two builds of one broker: between others nothing is corrected, in no rendering.
func TestNothingIsCorrectedBetweenTwoBrokers(t *testing.T) {
	for _, test := range []struct {
		second string
		want   bool
	}{{"nats-server@v2.15.3", true}, {"mosquitto", false}} {
		r := synth.Run{Seed: 1, Windows: []int{1, 20}, Passes: 2, Blocks: 3, Control: true, Arms: []synth.Arm{
			{Target: "nats-server@v2.14.10", Rate: func(int, int) float64 { return 1000 }},
			{Target: test.second, Rate: func(int, int) float64 { return 2000 }},
		}}.Result()
		m := drawn(r)
		var markdown bytes.Buffer
		if err := m.Markdown(&markdown, charts); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"page": rendered(t, m), "Markdown": markdown.String()} {
			before, _, _ := strings.Cut(text, "Method") // which explains the word
			if got := strings.Contains(before, ">corrected ") || strings.Contains(before, "| corrected |"); got != test.want {
				t.Errorf("%s: %s corrected: %t", test.second, name, got)
			}
			if got := strings.Contains(before, `class="band"`); name == "page" && got != test.want {
				t.Errorf("%s: a band: %t", test.second, got)
			}
		}
	}
}

func TestIdentifiersOfInlinedChartsDoNotCollide(t *testing.T) {
	page := rendered(t, model(t, "two-arms"))
	if strings.Contains(page, "<?xml") {
		t.Error("an XML prolog inside the page")
	}
	seen := map[string]bool{}
	for _, match := range regexp.MustCompile(`\sid="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if seen[match[1]] {
			t.Errorf("two elements with the identifier %q", match[1])
		}
		seen[match[1]] = true
	}
}

// TestPageIsSelfContained walks the page and fails for anything that would be fetched, and for tags left open.
func TestPageIsSelfContained(t *testing.T) {
	for name := range synth.Fixtures() {
		page := rendered(t, model(t, name))
		var open []string
		scripts := 0
		z := html.NewTokenizer(strings.NewReader(page))
		for {
			kind := z.Next()
			if kind == html.ErrorToken {
				if z.Err() != io.EOF {
					t.Fatal(z.Err())
				}
				break
			}
			token := z.Token()
			switch kind {
			case html.StartTagToken:
				switch token.Data {
				case "iframe", "img", "object", "embed":
					t.Errorf("%s: a %s element", name, token.Data)
				case "script":
					scripts++
					open = append(open, token.Data)
				case "meta", "link":
				default:
					open = append(open, token.Data)
				}
				for _, a := range token.Attr {
					if (a.Key == "src" || a.Key == "href") && !strings.HasPrefix(a.Val, "data:") && !strings.HasPrefix(a.Val, "#") {
						t.Errorf("%s: %s loads %q", name, token.Data, a.Val)
					}
				}
			case html.EndTagToken:
				if len(open) == 0 || open[len(open)-1] != token.Data {
					t.Fatalf("%s: </%s> closes %v", name, token.Data, open)
				}
				open = open[:len(open)-1]
			}
		}
		if scripts != 1 {
			t.Errorf("%s: %d scripts, want the page's own", name, scripts)
		}
		if len(open) > 0 {
			t.Errorf("%s: left open: %v", name, open)
		}
		if strings.Contains(page, "@import") || regexp.MustCompile(`url\((?:'|")?http`).MatchString(page) {
			t.Errorf("%s: the style loads something", name)
		}
	}
}

func TestPageCarriesTheResult(t *testing.T) {
	page := rendered(t, model(t, "two-arms"))
	match := regexp.MustCompile(`<a download="result.json" href="data:application/json;base64,([^"]*)"`).FindStringSubmatch(page)
	if match == nil {
		t.Fatal("no data: link")
	}
	raw, err := base64.StdEncoding.DecodeString(html.UnescapeString(match[1]))
	if err != nil || string(raw) != `{"schema":"inflight.result/1"}` {
		t.Errorf("the link holds %q, %v", raw, err)
	}
}

func TestTextFromTheResultIsNotMarkup(t *testing.T) {
	r := synth.Fixtures()["two-arms"]
	r.Scenario.Question = `<script>alert(1)</script> | **bold** ![x](http://evil/)`
	r.Arms[0].Target = "tcp://`a|b`<img src=x onerror=alert(1)>"
	r.Arms[1].Version = `"><script>`
	r.Partial, r.Trouble = true, "<b>~~gone~~</b>"
	r.Cells[0].Samples = []result.Sample{{RSS: r.Cells[0].RSSPeak}}
	m := drawn(r)
	page := rendered(t, m)
	page = strings.Replace(page, "<script>", "", 1) // its own
	for _, bad := range []string{"<script>", "<img", "<b>"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	var b bytes.Buffer
	if err := m.Markdown(&b, charts); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(b.String(), "\n") {
		if strings.Contains(line, "http://evil") && !strings.Contains(line, `!\[x\](http://evil/)`) {
			t.Errorf("the Markdown has a picture: %s", line)
		}
		if strings.HasPrefix(line, "| A | `") && strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") != 5 {
			t.Errorf("the row has other columns than its head: %s", line)
		}
		if strings.Contains(strings.ReplaceAll(line, `\<`, ""), "<b>") {
			t.Errorf("the Markdown has HTML: %s", line)
		}
	}
}

func TestIncorrectIsStruckOutEverywhere(t *testing.T) {
	m := model(t, "incorrect")
	page := rendered(t, m)
	for _, want := range []string{`<s>20,556</s> <span class="incorrect">incorrect</span>`, `<s>23.4</s>`, "✕ INCORRECT", `class="verdict incorrect partial"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	var b bytes.Buffer
	if err := m.Markdown(&b, charts); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"~~20,556~~", "~~23.4~~", "**INCORRECT**"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the Markdown has no %s", want)
		}
	}
	if strings.Contains(b.String(), "~~877~~") {
		t.Error("the correct arm is struck out too")
	}
}

func TestEveryCellOfATableHasItsHead(t *testing.T) {
	page := rendered(t, model(t, "two-arms"))
	if strings.Contains(page, "<td>") || strings.Contains(page, "<th>") {
		t.Error("a cell without a role")
	}
	for _, match := range regexp.MustCompile(`<t[dh] [^>]*>`).FindAllString(page, -1) {
		if strings.HasPrefix(match, "<th") && !strings.Contains(match, "scope=") {
			t.Errorf("no scope: %s", match)
		}
		if strings.HasPrefix(match, "<td") && !strings.Contains(match, "data-label=") {
			t.Errorf("no label for narrow screens: %s", match)
		}
	}
}

// A QoS may lose or repeat what it does not promise: that is said, and is no loss or duplicate of the headline.
func TestWhatAQoSMayDoIsNoFault(t *testing.T) {
	tests := []struct {
		qos    int
		ledger result.Ledger
		want   string
	}{
		{0, result.Ledger{Lost: 7}, "0 lost, 0 duplicated, 0 reordered of 100 messages; 0 acknowledgements out of order; 7 dropped at QoS 0, which may be"},
		{0, result.Ledger{Duplicated: 7}, "; 7 repeated below QoS 2, which may be"},
		{1, result.Ledger{Duplicated: 7}, "0 lost, 0 duplicated, 0 reordered of 100 messages; 0 acknowledgements out of order; 7 repeated below QoS 2, which may be"},
		{1, result.Ledger{Lost: 7}, "7 lost, 0 duplicated"},
		{2, result.Ledger{Lost: 7, Duplicated: 8}, "7 lost, 8 duplicated"},
	}
	for _, test := range tests {
		r := synth.Fixtures()["one-arm"]
		test.ledger.Published = 100
		for i := range r.Cells {
			r.Cells[i].Ledger = nil
			r.Cells[i].QoS, r.Cells[i].Control = test.qos, false
		}
		r.Cells[0].Ledger = &test.ledger
		if got := New(r).Correct; !strings.Contains(got, test.want) {
			t.Errorf("QoS %d: got %q, want %q in it", test.qos, got, test.want)
		}
	}
}

// Beside the response times of an open loop, the time from sending is called what it is.
func TestOpenLoopSaysWhichLatency(t *testing.T) {
	r := synth.Fixtures()["two-arms"]
	for i := range r.Cells {
		r.Cells[i].RatePerS = 1000
	}
	m := drawn(r)
	var md strings.Builder
	if err := m.Markdown(&md, charts); err != nil {
		t.Fatal(err)
	}
	if text := md.String(); !strings.Contains(text, "| B service p99 |") || strings.Contains(text, "| B p99 |") {
		t.Errorf("Markdown:\n%s", text)
	}
	if text := rendered(t, m); !strings.Contains(text, "B service p99") || strings.Contains(text, ">B p99<") {
		t.Error("the page's table does not say service p99")
	}
}
