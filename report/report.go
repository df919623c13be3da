package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

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

// judged returns a copy of r with today's verdicts; r itself stays as it was read.
func judged(r *result.Result) *result.Result {
	c := *r
	stat.Judge(&c)
	return &c
}
