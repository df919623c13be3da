// Package conform renders a conformance check: a table for people, Markdown, JSON and JUnit XML. Like every report it
// knows package runner/result alone, so that it can be made again from an old directory.
package conform
