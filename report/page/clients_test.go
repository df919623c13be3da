package page

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"inflight/report/internal/synth"
	"inflight/report/stat"
	"inflight/runner/result"
)

// What a client library carried is marked everywhere, what it does not tell is absent, and a ratio with it is not one of brokers.
func TestClients(t *testing.T) {
	t.Parallel()
	r := synth.Run{
		Seed: 1, Windows: []int{256}, Passes: 2, Blocks: 3, Control: true, Noise: 0.01,
		Arms: []synth.Arm{
			{Target: "null", Version: "v1", Rate: func(int, int) float64 { return 100_000 }},
			{Target: "null", Version: "v1", Rate: func(int, int) float64 { return 10_000 }},
		},
	}.Result()
	plain := *r
	stat.Judge(&plain)
	if m := New(&plain); len(m.Clients) > 0 || slices.ContainsFunc(m.Warnings, func(s string) bool { return strings.Contains(s, "clients") }) {
		t.Errorf("the wire client on both sides: %+v, %q", m.Clients, m.Warnings)
	}
	r.Arms[1].Client, r.Arms[1].ClientVersion = "paho", "paho.golang v0.1"
	for i := range r.Cells {
		c := &r.Cells[i]
		used := 0.001 * float64(c.Messages) / 1000
		if c.Arm == "B" && !c.Control {
			c.Client, c.Order = "paho", result.Order{}
			c.Latency.Receive, c.Latency.Release = nil, nil
			if c.Ledger != nil {
				c.Ledger.Unordered = true
			}
			used *= 50
		}
		c.GeneratorCPU = &used
	}
	stat.Judge(r)
	m := New(r)
	if len(m.Clients) != 1 {
		t.Fatalf("%d tables of clients", len(m.Clients))
	}
	rows := m.Clients[0].Rows
	if !slices.Equal(rows[0][:3], []string{"256", "A", "wire"}) || !slices.Equal(rows[1][:3], []string{"256", "B", "paho"}) || !slices.Contains(rows[1], "50.0") {
		t.Errorf("rows %q under %q", rows, m.Clients[0].Head)
	}
	if a := m.Arms[1]; a.Target != "null through paho" || a.Version != "v1; paho.golang v0.1" {
		t.Errorf("arm %+v", a)
	}
	if c := m.Correctness; c[0].Order != "0" || c[1].Order != "~" {
		t.Errorf("acknowledgements out of order: %q, %q", c[0].Order, c[1].Order)
	}
	if !strings.Contains(m.Correct, "not seen through the clients of B") {
		t.Errorf("correctness: %s", m.Correct)
	}
	headline := strings.Join(m.Headline, "\n")
	if !strings.Contains(headline, "B (client paho) is slower than A (client wire)") {
		t.Errorf("headline: %s", headline)
	}
	if !slices.ContainsFunc(m.Warnings, func(s string) bool {
		return strings.Contains(s, "different clients (A wire, B paho): their ratios compare clients, not brokers")
	}) {
		t.Errorf("warnings: %q", m.Warnings)
	}
	var markdown, html bytes.Buffer
	if err := m.Markdown(&markdown, Charts{}); err != nil {
		t.Fatal(err)
	}
	if err := m.HTML(&html, nil); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{markdown.String(), html.String()} {
		for _, want := range []string{"Clients", "msg per CPU s", "null through paho", "paho.golang v0.1"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in the page", want)
			}
		}
	}
	stat.Judge(r)
	if n := strings.Count(warningCodes(r), stat.CodeClients); n != 1 {
		t.Errorf("judged twice, it warns %d times", n)
	}
}

func warningCodes(r *result.Result) (all string) {
	for _, w := range r.Warnings {
		all += w.Code + " "
	}
	return all
}
