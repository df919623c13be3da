package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
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

//go:embed page.js
var script string

// Download is a file that the page carries along.
type Download struct {
	Name string
	Type string // its media type
	Data []byte
}

// HTML writes the model as one page that loads nothing else. Draw makes its figures. The downloads are inside the page.
func (m *Model) HTML(w io.Writer, downloads []Download) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"verdict":  sign,
		"absent":   func() string { return human.Absent },
		"sorter":   sorter,
		"labelled": func(rate, p99 string, c Cell) labelled { return labelled{rate, p99, c} },
	}).Parse(source)
	if err != nil {
		return fmt.Errorf("parsing the page's template: %w", err)
	}
	type link struct {
		Name, Size string
		Link       template.URL
	}
	var links []link
	for _, d := range downloads {
		links = append(links, link{d.Name, human.Bytes(int64(len(d.Data))), template.URL("data:" + d.Type + ";base64," + base64.StdEncoding.EncodeToString(d.Data))})
	}
	sum := sha256.Sum256([]byte(script))
	return t.Execute(w, struct {
		*Model
		Downloads  []link
		Script     template.JS
		ScriptHash template.HTMLAttr
		ArmStyle   template.CSS
	}{
		m, links,
		template.JS(script),
		// The policy lets this one script run, and nothing that anyone puts into the page.
		template.HTMLAttr("'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"),
		armStyle(len(m.Arms)),
	})
}

// labelled is a cell with what its columns are called where the table is a list of cards.
type labelled struct {
	Rate, P99 string
	Cell      Cell
}

// sorter is the head of a column that a click sorts by.
func sorter(name, class string) template.HTML {
	if class != "" {
		class = ` class="` + class + `"`
	}
	return template.HTML(`<th role="columnheader" scope="col"` + class + `><button type="button" class="sort">` + template.HTMLEscapeString(name) + `</button></th>`)
}

// armStyle colours each arm, dashes its lines, and hides it when its legend entry is switched off.
func armStyle(arms int) template.CSS {
	dashes := []string{"none", "7 3", "2 3", "9 3 2 3", "12 4", "5 2 2 2"}
	on, off := []string{"●", "■", "▲", "◆", "▼", "★"}, []string{"○", "□", "△", "◇", "▽", "☆"} // as package figure marks them
	var b strings.Builder
	for i := range arms {
		k := i % len(dashes)
		fmt.Fprintf(&b, "svg .a%d { color: var(--c%d) } button.t%d::before { content: \"%s\"; color: var(--c%d) } button.t%d[aria-pressed=false]::before { content: \"%s\" } svg .a%d .line { stroke-dasharray: %s } .off-%d svg .a%d { display: none }\n", i, k, i, on[k], k, i, off[k], i, dashes[k], i, i)
	}
	return template.CSS(b.String())
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
