package hist

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inflight/runner/result"
)

// saved is the directory of a run with 1 to 1,000 microseconds, each once, as the time from intended instant to acknowledgement.
func saved(t *testing.T) string {
	t.Helper()
	h := hdrhistogram.New(1, 1e9, 3)
	h.SetTag("ack_response")
	for us := int64(1); us <= 1_000; us++ {
		if err := h.RecordValue(us * 1_000); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	w := hdrhistogram.NewHistogramLogWriter(&b)
	if err := w.OutputIntervalHistogram(h); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.hlog"), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	dir := saved(t)
	c := &result.Cell{Histograms: "a.hlog"}
	for _, d := range []*Dir{Open(dir), Open(filepath.Join(dir, result.FileName))} {
		for q, want := range map[float64]int64{0.5: 500_000, 0.95: 950_000, 0.985: 985_000} {
			ns, ok, err := d.Percentile(c, "ack_response", q)
			if err != nil || !ok || ns < want || ns > want+want/500 {
				t.Errorf("%v: %d, %v, %v; want %d", q, ns, ok, err, want)
			}
		}
		if _, ok, err := d.Percentile(c, "ack_response", 0.995); ok || err != nil {
			t.Errorf("five samples beyond it are enough: %v", err)
		}
		if _, ok, err := d.Percentile(c, "end_to_end", 0.5); ok || err != nil {
			t.Errorf("a latency that was not recorded: %v, %v", ok, err)
		}
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := saved(t)
	whole, err := os.ReadFile(filepath.Join(dir, "a.hlog"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"bad.hlog": []byte("\"Tag=ack_service,1,2,3\n"), "cut.hlog": whole[:len(whole)/2], "large.hlog": bytes.Repeat([]byte("#\n"), maxLog)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d := Open(dir)
	for name, want := range map[string]string{
		"":                 "names no histogram",
		"gone.hlog":        "gone.hlog is missing: copy the run's directory as a whole",
		"../a.hlog":        "not below the run's directory",
		"/etc/passwd":      "not below the run's directory",
		"bad.hlog":         "bad.hlog: ",
		"cut.hlog":         "cut.hlog: ",
		"large.hlog":       "larger than 4 MiB",
		"a.hlog/not-there": "not-there",
	} {
		if _, _, err := d.Percentile(&result.Cell{Histograms: name}, "ack_response", 0.5); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}
