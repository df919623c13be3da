// Package figure draws the charts of the page as SVG: points that can be hovered and stepped through, series that can be
// switched off, colours that follow the page's theme. Package chart draws the same for files, where there is no page around.
//
// A figure is complete without a script: each point has a title, which browsers show as a tip. Everything that belongs to a
// series has the class aN, N being the number of its arm, so that the page's style colours it and can hide it. Text is
// escaped here. The same figure gives the same bytes.
package figure
