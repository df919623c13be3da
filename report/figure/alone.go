package figure

import (
	"bytes"
	"fmt"
	"html"
	"strings"
)

// palette of the arms, on white and on black.
var palette = [...]string{"#0072b2", "#c04a00", "#00795a", "#a8487f", "#444444", "#2a8fc9"}

const legendRow = 18.0

// Alone makes a figure a document of its own, with a style and a legend of the arms' names below; nil for an empty figure.
func Alone(svg string, names []string) []byte {
	if svg == "" {
		return nil
	}
	tall := height + legendRow*float64(len(names)) + 8
	inner := strings.TrimSuffix(svg[strings.Index(svg, ">")+1:], "</svg>")
	head := svg[:strings.Index(svg, ">")]
	head = strings.Replace(head, fmt.Sprintf(`viewBox="0 0 %s %s"`, n(width), n(height)), fmt.Sprintf(`xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s"`, n(width), n(tall)), 1)
	head = strings.Replace(head, ` tabindex="0"`, "", 1)
	var b bytes.Buffer
	b.WriteString(head)
	b.WriteString(`><style>svg{background:#fff;font:12px system-ui,"Liberation Sans",Arial,sans-serif}text{fill:#444}.label,.row{fill:#111}` +
		`.axis,.grid,.one,.line,.bar,.cross,.change{fill:none;stroke:#ddd}.axis{stroke:#666}.line,.bar,.cross,.change{stroke:currentColor}.change{stroke-dasharray:2 2}` +
		`.line{stroke-width:1.8}.mark{fill:currentColor;stroke:#fff}.mark.struck{fill:#fff;stroke:currentColor}.band{fill:#666;opacity:.18}.hit,.dot{fill:transparent}`)
	for i := range names {
		fmt.Fprintf(&b, ".a%d{color:%s}", i, palette[i%len(palette)])
	}
	b.WriteString("</style>")
	b.WriteString(inner)
	for i, name := range names {
		y := height + legendRow*(float64(i)+0.5)
		fmt.Fprintf(&b, `<g class="s a%d">%s<text x="26" y="%s" font-size="9">%s</text></g>`, i, marker(i, 14, y, false), n(y+4), html.EscapeString(name))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
