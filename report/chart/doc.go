// Package chart draws a result: throughput and p99 of the acknowledgement time against the in-flight window, one line
// per arm, both axes logarithmic. A run that sweeps the number of connections at one window gets the connections as its
// x axis; one that sweeps several other values gets a panel for each combination.
//
// A point is the geometric mean of the passes. Its bar is the 95 % interval of the arm's own blocks (Student's t on their
// logarithms, stratified by pass). An arm that broke its contract at a point has a hollow, crossed marker there. Arms
// differ in colour, marker and dashes, so that they are told apart in grey and by colour-blind readers, and the
// background is white whatever the page around it.
//
// The same result gives the same bytes: the fonts are the ones that gonum/plot carries, and nothing is dated.
package chart
