// Package page renders a result as Markdown and as one self-contained HTML page. Both come from the same [Model], which
// is also what the table on the terminal is made from, so that no two renderings disagree about a number or a verdict.
//
// The page loads nothing: charts are inline SVG (package figure), style and script are in it, the raw result and its cells
// as CSV are data: links, and its policy allows nothing else. It follows the reader's colour scheme, prints, and is a list of
// cards where the screen is too narrow for a table. Without a script it is complete; with it, hovering or the arrow keys show
// the values of a point, a legend's entry switches its arm off in every chart, and a click on a column's head sorts.
package page
