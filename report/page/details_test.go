package page

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"inflight/report/internal/synth"
	"inflight/report/stat"
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
			cpu := 0.02
			c.CPUPer1000 = &cpu
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
	if m.Gaps == nil || !slices.Equal(m.Gaps.Head, []string{"in flight", "connections", "A", "B"}) || !slices.Equal(m.Gaps.Rows[0], []string{"20", "1", "0.25", "1.00"}) {
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
		for _, want := range []string{"Delivery", "delivered/s", "8,000", "Resources", "B/queued", "QoS 2 over that at QoS 1", "0.25"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in the page", want)
			}
		}
	}
}
