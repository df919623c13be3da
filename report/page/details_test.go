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

// TestDetails: columns are there where a value is, and nowhere else; a run of before these were measured has none of it.
func TestDetails(t *testing.T) {
	t.Parallel()
	r := synth.Run{
		Seed: 1, Windows: []int{20}, QoS: []int{1, 2}, Passes: 2, Blocks: 3,
		Arms: []synth.Arm{
			{Target: "a", Rate: func(qos, _ int) float64 { return map[int]float64{1: 1000, 2: 250}[qos] }},
			{Target: "b", Rate: func(int, int) float64 { return 1000 }},
		},
	}.Result()
	stat.Judge(r)
	if m := New(r); len(m.Delivery) != 0 || len(m.Resources) != 0 {
		t.Errorf("a run without subscribers: delivery %+v, resources %+v", m.Delivery, m.Resources)
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Arm == "B" {
			delivered, queued := 8_000.0, 1_200.0
			peak := int64(100 << 20)
			c.DeliveredPerS, c.QueuedPeak, c.BytesPerQueued, c.RSSPeak = &delivered, 15_000, &queued, &peak
			cpu, slope, bytes := 0.02, -2048.0, float64(1<<20)
			c.CPUPer1000, c.PayloadBytesPerS = &cpu, &bytes
			c.Nodes = []result.Node{{Name: "n1", RSSSlope: &slope}, {Name: "n2", RSSPeak: &peak}}
			c.Generator = &result.Node{BytesPerInFlight: &queued}
		}
	}
	m := New(r)
	if len(m.Delivery) != 2 || !slices.Equal(m.Delivery[0].Head, []string{"in flight", "arm", "delivered/s"}) {
		t.Fatalf("delivery %+v", m.Delivery)
	}
	if got := m.Delivery[0].Rows; !slices.Equal(got[0], []string{"20", "A", "~"}) || !slices.Equal(got[1], []string{"20", "B", "8,000"}) {
		t.Errorf("rows %v", got)
	}
	if head := m.Resources[0].Head; !slices.Contains(head, "over A") || !slices.Contains(head, "B/queued") || slices.Contains(head, "threads") {
		t.Errorf("columns of the resources: %v", head)
	}
	if p := m.Processes[0]; !slices.Equal(p.Head, []string{"in flight", "arm", "process", "peak RSS", "slope/s", "B/in flight"}) ||
		!slices.Equal(p.Rows[0], []string{"20", "B", "n1", "~", "-2.00 KiB", "~"}) || !slices.Equal(p.Rows[2], []string{"20", "B", "generator", "~", "~", "1,200"}) {
		t.Errorf("processes %+v", p)
	}
	if m.Payloads != nil {
		t.Errorf("payloads of one size: %+v", m.Payloads)
	}
	r.Scenario.Payloads = append(r.Scenario.Payloads, 1024)
	m = New(r)
	if m.Payloads == nil || !slices.Equal(m.Payloads.Head, []string{"payload", "in flight", "QoS", "A", "B"}) || !slices.Equal(m.Payloads.Rows[1], []string{"256", "20", "2", "~", "1.00 MiB"}) {
		t.Errorf("payloads %+v", m.Payloads)
	}
	if m.Gaps == nil || !slices.Equal(m.Gaps.Head, []string{"in flight", "connections", "payload", "A", "B"}) || !slices.Equal(m.Gaps.Rows[0], []string{"20", "1", "256", "0.25", "1.00"}) {
		t.Errorf("gaps %+v", m.Gaps)
	}
	var markdown, html bytes.Buffer
	if err := m.Markdown(&markdown, Charts{}); err != nil {
		t.Fatal(err)
	}
	if err := m.HTML(&html, nil); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{markdown.String(), html.String()} {
		for _, want := range []string{"Delivery", "delivered/s", "8,000", "Resources", "B/queued", "QoS 2 over that at QoS 1", "0.25", "Payload bytes per second", "1.00 MiB", "-2.00 KiB"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in the page", want)
			}
		}
	}
}
