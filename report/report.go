package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"inflight/report/chart"
	"inflight/report/page"
	"inflight/report/stat"
	"inflight/runner/result"
)

// Files that WriteDir makes, beside those that package page names.
const (
	MarkdownFile      = "report.md"
	HTMLFile          = "report.html"
	ThroughputPNGFile = "throughput.png"
	P99PNGFile        = "p99.png"
)

// WriteDir reads dir's result.json and makes, or makes again, report.md, report.html, throughput.svg, throughput.png,
// p99.svg and p99.png beside it. The result itself is not touched. The same result gives the same bytes.
func WriteDir(dir string) error {
	r, err := result.Read(dir)
	if err != nil {
		return err
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		dir = filepath.Dir(dir) // Read takes the file too
	}
	files, err := render(r, dir)
	if err != nil {
		return fmt.Errorf("rendering %s: %w", dir, err)
	}
	return writeFiles(dir, files)
}

func writeFiles(dir string, files []File) error {
	for _, f := range files {
		if err := result.WriteFile(filepath.Join(dir, f.Name), f.Data); err != nil {
			if errors.Is(err, fs.ErrPermission) {
				return fmt.Errorf("%w: the reports are written beside result.json; copy the directory to where you may write", err)
			}
			return err
		}
	}
	return nil
}

// File is one rendering.
type File struct {
	Name string
	Data []byte
}

// Render returns the files that WriteDir writes, but for what is only in the run's histograms.
func Render(r *result.Result) ([]File, error) { return render(r, "") }

// render is Render with the histograms below dir; "": none.
func render(r *result.Result, dir string) ([]File, error) {
	r = judged(r)
	var curves []page.Curve
	var trouble string
	if dir != "" {
		curves, trouble = curvesOf(dir, r)
	}
	return files(r, curves, trouble)
}

// files renders a judged result.
func files(r *result.Result, curves []page.Curve, trouble string) ([]File, error) {
	charts := page.Charts{ThroughputAlt: chart.Alt(r, chart.Throughput), P99Alt: chart.Alt(r, chart.P99)}
	var err error
	var throughputPNG, p99PNG []byte
	for _, draw := range []struct {
		to     *[]byte
		with   func(*result.Result, chart.Metric) ([]byte, error)
		metric chart.Metric
	}{
		{&charts.Throughput, chart.SVG, chart.Throughput},
		{&charts.P99, chart.SVG, chart.P99},
		{&throughputPNG, chart.PNG, chart.Throughput},
		{&p99PNG, chart.PNG, chart.P99},
	} {
		if *draw.to, err = draw.with(r, draw.metric); err != nil {
			return nil, err
		}
	}
	raw, err := result.Encode(r)
	if err != nil {
		return nil, err
	}
	var small bytes.Buffer // half as large without its indents
	if err := json.Compact(&small, raw); err != nil {
		return nil, err
	}
	model := page.New(r)
	if trouble != "" {
		model.Warnings = append(model.Warnings, trouble)
	}
	model.Draw(r, curves)
	var markdown, html, cells bytes.Buffer
	if err := CSV(&cells, r); err != nil {
		return nil, err
	}
	if err := model.Markdown(&markdown, charts); err != nil {
		return nil, err
	}
	if err := model.HTML(&html, []page.Download{{Name: result.FileName, Type: "application/json", Data: small.Bytes()}, {Name: "cells.csv", Type: "text/csv", Data: cells.Bytes()}}); err != nil {
		return nil, err
	}
	return []File{
		{MarkdownFile, markdown.Bytes()},
		{HTMLFile, html.Bytes()},
		{page.ThroughputFile, charts.Throughput},
		{ThroughputPNGFile, throughputPNG},
		{page.P99File, charts.P99},
		{P99PNGFile, p99PNG},
	}, nil
}

// Markdown writes the report.md of r to w. Its charts are links to the files that WriteDir makes.
func Markdown(w io.Writer, r *result.Result) error {
	r = judged(r)
	charts := page.Charts{ThroughputAlt: chart.Alt(r, chart.Throughput), P99Alt: chart.Alt(r, chart.P99)}
	return page.New(r).Markdown(w, charts)
}

// JSON writes r, judged, in the format of result.json.
func JSON(w io.Writer, r *result.Result) error {
	data, err := result.Encode(judged(r))
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// CSV writes one row per cell, the controls included, under a row of names. Names and units are those of result.json;
// what was not measured is empty.
func CSV(w io.Writer, r *result.Result) error {
	arms := map[string]result.Arm{}
	for _, a := range r.Arms {
		arms[a.Name] = a
	}
	c := csv.NewWriter(w)
	head := []string{
		"arm", "target", "pass", "slot", "qos", "window", "connections", "payload_bytes", "control", "throughput_per_s", "messages", "duration_ns",
		"ack_service_count", "ack_service_mean_ns", "ack_service_p50_ns", "ack_service_p90_ns", "ack_service_p99_ns", "ack_service_p999_ns", "ack_service_max_ns",
		"in_flight_requested", "in_flight_achieved_mean", "rss_peak_bytes", "cpu_s", "generator_cpu_s", "order_violations",
		"published", "acknowledged", "delivered", "lost", "duplicated", "reordered", "corrupt", "incorrect",
	}
	for _, name := range []string{"publish_to_pubrec", "pubrel_to_pubcomp", "fence", "ack_response", "end_to_end"} {
		for _, column := range []string{"count", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"} {
			head = append(head, name+"_"+column)
		}
	}
	head = append(head, "class", "rate_per_s", "late", "missed", "subscribers", "delivered_per_s", "disk_bytes_written", "threads", "fds")
	head = append(head, "rate_ramp", "payload_sizes", "payload_bytes_per_s")
	if err := c.Write(head); err != nil {
		return err
	}
	for i := range r.Cells {
		if err := c.Write(record(&r.Cells[i], arms[r.Cells[i].Arm])); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

func record(c *result.Cell, arm result.Arm) []string {
	arm.Client = c.Client // a control is loaded through another one
	row := []string{
		c.Arm, arm.Label(), strconv.Itoa(c.Pass), strconv.Itoa(c.Slot), strconv.Itoa(c.QoS), strconv.Itoa(c.Window), strconv.Itoa(c.Connections),
		strconv.Itoa(c.Payload), strconv.FormatBool(c.Control), number(&c.ThroughputPerS), whole(&c.Messages), whole(&c.DurationNS),
	}
	row = append(row, latency(c.Latency.AckService)...)
	row = append(row, strconv.Itoa(c.InFlight.Requested), number(&c.InFlight.AchievedMean), whole(c.RSSPeak), number(c.CPUSeconds), number(c.GeneratorCPU), whole(&c.Order.Violations))
	if l := c.Ledger; l == nil {
		row = append(row, "", "", "", "", "", "", "")
	} else {
		row = append(row, whole(&l.Published), whole(&l.Acknowledged), whole(&l.Delivered), whole(&l.Lost), whole(&l.Duplicated), whole(&l.Reordered), whole(&l.Corrupt))
	}
	row = append(row, strconv.FormatBool(c.Incorrect()))
	for _, d := range []*result.Distribution{c.Latency.Receive, c.Latency.Release, c.Latency.Fence, c.Latency.AckResponse, c.Latency.EndToEnd} {
		row = append(row, latency(d)...)
	}
	row = append(row, c.Class)
	if c.RatePerS > 0 {
		row = append(row, number(&c.RatePerS), whole(&c.Late), whole(&c.Missed))
	} else {
		row = append(row, "", "", "") // a closed loop is neither late nor does it miss
	}
	row = append(row, strconv.Itoa(c.Subscribers), number(c.DeliveredPerS), whole(c.DiskBytesWritten), whole(c.Threads), whole(c.FDs))
	return append(row, c.Ramp, c.Sizes, number(c.PayloadBytesPerS))
}

// latency is the seven columns of a distribution, empty where there are too few samples.
func latency(d *result.Distribution) []string {
	if d == nil {
		return make([]string, 7)
	}
	return []string{whole(&d.Count), whole(&d.Mean), whole(d.P50), whole(d.P90), whole(d.P99), whole(d.P999), whole(&d.Max)}
}

func number(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', -1, 64)
}

func whole(v *int64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatInt(*v, 10)
}

// judged returns a copy of r with today's verdicts; r itself stays as it was read.
func judged(r *result.Result) *result.Result {
	c := *r
	stat.Judge(&c)
	return &c
}
