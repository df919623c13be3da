package page

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"strings"

	"inflight/report/internal/human"
	"inflight/report/stat"
)

// Charts are the pictures that go with a model: SVG documents, and what they show in words.
type Charts struct {
	Throughput, P99       []byte
	ThroughputAlt, P99Alt string
}

//go:embed page.html.tmpl
var source string

// HTML writes the model as one page that loads nothing else. raw is the result.json, which the page carries along.
func (m *Model) HTML(w io.Writer, charts Charts, raw []byte) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"verdict": sign,
		"absent":  func() string { return human.Absent },
		"bytes":   func(b []byte) string { return human.Bytes(int64(len(b))) },
	}).Parse(source)
	if err != nil {
		return fmt.Errorf("parsing the page's template: %w", err)
	}
	return t.Execute(w, struct {
		*Model
		Throughput, P99 template.HTML
		Raw             []byte
		RawLink         template.URL
	}{
		m,
		// Both are ours: drawn by package chart, which escapes what comes from the result.
		template.HTML(inline(charts.Throughput, "throughput-")), template.HTML(inline(charts.P99, "p99-")),
		raw, template.URL("data:application/json;base64," + base64.StdEncoding.EncodeToString(raw)),
	})
}

// sign puts a mark before a verdict, so that colour is not all that tells them apart.
func sign(verdict string) string {
	switch verdict {
	case stat.Better:
		return "▲ better"
	case stat.Worse:
		return "▼ worse"
	case stat.Same:
		return "= same"
	case stat.Inconclusive:
		return "? inconclusive"
	case stat.Incorrect:
		return "✕ INCORRECT"
	default:
		return verdict
	}
}

var (
	prolog     = regexp.MustCompile(`(?s)^.*?(<svg[ >])`)
	identifier = regexp.MustCompile(`(\sid="|url\(#|href="#|url\('#)`)
)

// inline makes an SVG document fit for the inside of a page: no prolog, and identifiers of its own, because those of a
// page are shared by everything in it.
func inline(svg []byte, prefix string) string {
	s := prolog.ReplaceAllString(string(svg), "$1")
	return strings.TrimSpace(identifier.ReplaceAllString(s, "${1}"+prefix))
}
