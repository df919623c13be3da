package target

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
)

// errorLines is how much of a log an error shows.
const errorLines = 10

// maxTail bounds what is read of a log for that, in bytes.
const maxTail = 16 << 10

// DeadError says that a process of the broker ended on its own.
type DeadError struct {
	Target    string
	Node      string   // n1, n2, ...
	Status    string   // "exit status 1", "signal: killed"
	LastLines []string // the end of what it printed, at most 10 lines
	LogPath   string   // all of it
}

// Error is one sentence, followed by the last lines of the log.
func (e *DeadError) Error() string {
	return fmt.Sprintf("%s: node %s died: %s%s", e.Target, e.Node, e.Status, logExcerpt(e.LastLines, e.LogPath))
}

// NotReadyError says that a node never did what every broker must do before it is measured.
type NotReadyError struct {
	Target    string
	Node      string
	Cause     error    // of the last attempt, or why there was no further one
	LastLines []string // as in DeadError; none for a broker that was not started
	LogPath   string
}

// Error is one sentence, followed by the last lines of the log.
func (e *NotReadyError) Error() string {
	who := e.Target
	if e.Node != "" { // a broker that was not started has no nodes to name
		who += ": node " + e.Node
	}
	return fmt.Sprintf("%s: %v%s", who, e.Cause, logExcerpt(e.LastLines, e.LogPath))
}

// Unwrap is the cause.
func (e *NotReadyError) Unwrap() error { return e.Cause }

func logExcerpt(lines []string, path string) string {
	switch {
	case path == "":
		return ""
	case len(lines) == 0:
		return "; it printed nothing (log: " + path + ")"
	}
	return "; its last lines (all of them: " + path + "):" + indent(lines)
}

// indent is the lines below a sentence, "" for none.
func indent(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return "\n    " + strings.Join(lines, "\n    ")
}

// lastLines are the last n lines of text that are not blank.
func lastLines(text []byte, n int) []string {
	var lines []string
	for line := range bytes.Lines(text) {
		if line = bytes.TrimRight(line, " \t\r\n"); len(line) > 0 {
			lines = append(lines, strings.ToValidUTF8(string(line), "\uFFFD"))
		}
	}
	return lines[max(0, len(lines)-n):]
}

// tail reads the last lines of the log at path, of what was written after offset.
func tail(path string, offset int64) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size()-maxTail > offset {
		offset = info.Size() - maxTail
	}
	text, err := io.ReadAll(io.NewSectionReader(f, offset, maxTail))
	if err != nil {
		return nil
	}
	return lastLines(text, errorLines)
}
