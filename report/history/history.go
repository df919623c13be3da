package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"inflight/report/internal/human"
	"inflight/report/stat"
	"inflight/runner/result"
)

// Schema names the format of a line.
const Schema = "inflight.history/1"

// FileName is the history's name inside its directory.
const FileName = "history.jsonl"

// Limits of what is read.
const (
	MaxBytes = 64 << 20
	maxLine  = 64 << 10
)

// Entry is one line: an arm at a point of one run. Times are nanoseconds; what was not measured is absent.
type Entry struct {
	Schema      string    `json:"schema"`
	Started     time.Time `json:"started"` // of the run
	Commit      string    `json:"commit"`
	Scenario    string    `json:"scenario"`
	Machine     string    `json:"machine"` // processor, cores and system, in words
	Arm         string    `json:"arm"`
	Target      string    `json:"target"`
	Version     string    `json:"version,omitempty"`
	QoS         int       `json:"qos"`
	Window      int       `json:"window"`
	Connections int       `json:"connections"`
	Payload     int       `json:"payload_bytes"`
	Rate        int       `json:"rate_per_s,omitempty"`
	Ramp        string    `json:"rate_ramp,omitempty"`
	Sizes       string    `json:"payload_sizes,omitempty"`
	Throughput  *float64  `json:"throughput_per_s,omitempty"`
	P99         *float64  `json:"ack_service_p99_ns,omitempty"`
	RSSPeak     *int64    `json:"rss_peak_bytes,omitempty"`
	Incorrect   bool      `json:"incorrect,omitempty"` // the numbers do not count
}

// Of makes the lines of a run. A partial run has none: its numbers are not those of the scenario.
func Of(r *result.Result, commit string) ([]Entry, error) {
	switch {
	case r.Partial:
		return nil, errors.New("the run is partial: it does not belong into a history")
	case r.SideBySide:
		return nil, errors.New("several runs side by side: add each of them by itself")
	case commit == "":
		return nil, errors.New("no commit: say which one was measured")
	}
	e := r.Environment
	machine := fmt.Sprintf("%s, %d cores, %s/%s", orUnknown(e.CPU), e.Cores, e.OS, e.Arch)
	var out []Entry
	for _, at := range stat.Points(r) {
		for _, a := range r.Arms {
			s := stat.Summarise(r, a.Name, at)
			if s == nil {
				continue
			}
			entry := Entry{
				Schema: Schema, Started: r.Started.UTC(), Commit: commit, Scenario: r.Scenario.Name, Machine: machine,
				Arm: a.Name, Target: a.Label(), Version: a.Version,
				QoS: at.QoS, Window: at.Window, Connections: at.Connections, Payload: at.Payload, Rate: at.Rate, Ramp: at.Ramp, Sizes: at.Sizes,
				RSSPeak: s.RSSPeak, Incorrect: s.Incorrect,
			}
			if s.Throughput != nil {
				entry.Throughput = finite(s.Throughput.Value)
			}
			if s.P99 != nil {
				entry.P99 = finite(s.P99.Value)
			}
			out = append(out, entry)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("nothing was measured: the result has no cells")
	}
	return out, nil
}

func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown processor"
	}
	return human.Clean(s)
}

// Append returns the history with further entries. A run that it has already is an error.
func Append(old []byte, entries []Entry) ([]byte, error) {
	known, err := Decode(old)
	if err != nil {
		return nil, err
	}
	for i := range known {
		if known[i].Started.Equal(entries[0].Started) && known[i].Scenario == entries[0].Scenario {
			return nil, fmt.Errorf("the history has this run already (%s, started %s)", known[i].Scenario, known[i].Started.Format(time.RFC3339))
		}
	}
	var b bytes.Buffer
	b.Write(old)
	if len(old) > 0 && old[len(old)-1] != '\n' {
		b.WriteByte('\n')
	}
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i := range entries {
		if err := enc.Encode(&entries[i]); err != nil {
			return nil, fmt.Errorf("write an entry: %w", err)
		}
	}
	return b.Bytes(), nil
}

// Decode reads a history. Errors name the line: one that was cut off by a merge, or written by a newer inflight.
func Decode(data []byte) ([]Entry, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("the history is larger than %d MiB", MaxBytes>>20)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxLine)
	var out []Entry
	number := 0
	for lines.Scan() {
		number++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			if bytes.HasPrefix(line, []byte("<<<<<<<")) || bytes.HasPrefix(line, []byte("=======")) || bytes.HasPrefix(line, []byte(">>>>>>>")) {
				return nil, fmt.Errorf("line %d: a merge conflict: keep the lines of both sides", number)
			}
			return nil, fmt.Errorf("line %d: is not an entry: %w", number, err)
		}
		if e.Schema != Schema {
			hint := "is not an entry of a history"
			if strings.HasPrefix(e.Schema, "inflight.history/") {
				hint = "was written by a newer inflight: update inflight"
			}
			return nil, fmt.Errorf("line %d: schema %q, want %q: %s", number, e.Schema, Schema, hint)
		}
		out = append(out, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", number+1, err)
	}
	return out, nil
}
