// Package page renders a result as Markdown and as one self-contained HTML page. Both come from the same [Model], which
// is also what the table on the terminal is made from, so that no two renderings disagree about a number or a verdict.
//
// The page loads nothing: charts are inline SVG, the style is in the head, the raw result is a data: link. It follows
// the reader's colour scheme, prints, and is a list of cards where the screen is too narrow for a table.
package page
