package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"inflight/runner"
	"inflight/scenarios"
)

// redrawEvery keeps the time left moving between two events. It is also the least time between two drawings.
const redrawEvery = 100 * time.Millisecond

// defaultWidth is that of a terminal that does not tell.
const defaultWidth = 80

// progress tells on standard error how far a run is: on a terminal in one line that is drawn again and again and is gone
// at the end, elsewhere in a plain line per block and per finished cell.
type progress struct {
	w     io.Writer
	now   func() time.Time
	width func() int // of the terminal in columns; nil: not a terminal
	label labeller

	mu    sync.Mutex
	last  runner.Event
	at    time.Time // when last came
	drawn int       // columns of the line on the screen
	block string    // the last block that a plain line was printed for

	stop chan struct{}
	done sync.WaitGroup
}

// newProgress draws on w, on which it is the only writer until close.
func newProgress(w io.Writer, s *scenarios.Scenario) *progress {
	p := &progress{w: w, now: time.Now, width: terminalWidth(w), label: newLabeller(s), stop: make(chan struct{})}
	if p.width != nil {
		p.done.Go(p.tick)
	}
	return p
}

// close clears the line.
func (p *progress) close() {
	close(p.stop)
	p.done.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// event takes the next step of the run.
func (p *progress) event(e runner.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.Kind == runner.Talk:
		p.clear()
		fmt.Fprintln(p.w, e.Text)
		return
	case p.width == nil:
		p.plain(e)
	}
	p.last, p.at = e, p.now()
}

func (p *progress) tick() {
	ticker := time.NewTicker(redrawEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		case <-p.stop:
			return
		}
	}
}

// plain prints what a log wants to know: the pass, each block, each finished cell.
func (p *progress) plain(e runner.Event) {
	switch e.Kind {
	case runner.Preparing:
		fmt.Fprintf(p.w, "preparing %s = %s\n", e.Arm, e.Target)
	case runner.Starting:
		fmt.Fprintf(p.w, "pass %d of %d: starting the brokers%s\n", e.Pass, e.Passes, left(e.Total-e.Done))
	case runner.Running:
		block := fmt.Sprintf("pass %d of %d: block %d of %d", e.Pass, e.Passes, e.Block, e.Blocks)
		switch {
		case e.Trial > 0:
			block = fmt.Sprintf("pass %d of %d: %s, %s: searching, trial %d", e.Pass, e.Passes, e.Arm, p.label.point(e.Point), e.Trial)
		case e.Verify:
			block = fmt.Sprintf("pass %d of %d: counting deliveries", e.Pass, e.Passes)
		case e.Block == 0:
			return
		}
		if block != p.block {
			fmt.Fprintf(p.w, "%s%s\n", block, left(e.Total-e.Done))
			p.block = block
		}
	case runner.CellDone:
		if e.Cell == nil || e.Control {
			return
		}
		text := rate(e.Cell.ThroughputPerS)
		if d := e.Cell.Latency.AckService; d != nil && d.P99 != nil {
			text += ", p99 " + latency(*d.P99)
		}
		if e.Cell.Incorrect() {
			text += ", INCORRECT"
		}
		fmt.Fprintf(p.w, "pass %d of %d: %s, %s: %s\n", e.Pass, e.Passes, e.Arm, p.label.point(e.Point), text)
	}
}

// clear takes the line off the screen. Blanks do it on every terminal, escape sequences on most.
func (p *progress) clear() {
	if p.drawn > 0 {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.drawn))
		p.drawn = 0
	}
}

// draw puts the line on the screen over the one that is there.
func (p *progress) draw() {
	if p.at.IsZero() {
		return
	}
	// The last column stays free: some terminals wrap as soon as it is filled.
	line := p.line(p.width() - 1)
	n := utf8.RuneCountInString(line)
	fmt.Fprintf(p.w, "\r%s%s", line, strings.Repeat(" ", max(0, p.drawn-n)))
	p.drawn = n
}

// line is the state of the run in at most width columns. A narrow terminal loses the bar first, then the block, and the
// end of what remains.
func (p *progress) line(width int) string {
	e := p.last
	where, detail := "", ""
	switch e.Kind {
	case runner.Preparing:
		where = "preparing " + e.Target
	case runner.Starting:
		where = fmt.Sprintf("pass %d/%d  starting the brokers", e.Pass, e.Passes)
	case runner.Stopping:
		where = fmt.Sprintf("pass %d/%d  stopping the brokers", e.Pass, e.Passes)
	default:
		where = fmt.Sprintf("pass %d/%d  %s  %s", e.Pass, e.Passes, e.Arm, p.label.point(e.Point))
		switch {
		case e.Trial > 0:
			detail = fmt.Sprintf("  searching, trial %d", e.Trial)
		case e.Verify:
			detail = "  counting deliveries"
		case e.Block == 0:
			detail = "  first load"
		case e.Control:
			detail = fmt.Sprintf("  block %d/%d control", e.Block, e.Blocks)
		default:
			detail = fmt.Sprintf("  block %d/%d", e.Block, e.Blocks)
		}
	}
	done := e.Done + p.now().Sub(p.at)
	share := 0.0
	if e.Total > 0 {
		share = min(1, float64(done)/float64(e.Total))
	}
	end := ""
	if e.Total > 0 {
		end = fmt.Sprintf("  %3.0f%%  %s left", 100*share, seconds(max(0, e.Total-done)))
	}
	used := utf8.RuneCountInString(where) + utf8.RuneCountInString(end)
	switch room := width - used - utf8.RuneCountInString(detail); {
	case e.Total <= 0 || used > width:
		return clip(where, width)
	case room < 0:
		return where + end
	case room < 10:
		return where + detail + end
	default:
		return where + detail + "  " + bar(share, min(room-2, 30)) + end
	}
}

// bar is width columns, at least two.
func bar(share float64, width int) string {
	inner := width - 2
	full := int(share * float64(inner))
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", inner-full) + "]"
}

func clip(s string, width int) string {
	runes := []rune(s)
	return string(runes[:max(0, min(width, len(runes)))])
}

func left(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return fmt.Sprintf(", about %s left", seconds(d))
}

// seconds is a time for people: 8s, 1m05s.
func seconds(d time.Duration) string {
	d = d.Round(time.Second)
	if d < time.Minute {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
}

// rate is messages per second with separators between thousands.
func rate(perS float64) string {
	digits := fmt.Sprintf("%.0f", perS)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits + " msg/s"
}

// latency is nanoseconds to three significant digits, in the unit that fits.
func latency(ns int64) string {
	switch v := float64(ns); {
	case ns < 1_000:
		return fmt.Sprintf("%d ns", ns)
	case ns < 1_000_000:
		return significant(v/1e3) + " µs"
	case ns < 1_000_000_000:
		return significant(v/1e6) + " ms"
	default:
		return significant(v/1e9) + " s"
	}
}

// significant is v, at least 1, to three digits, never in the form 1e+03.
func significant(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// labeller names points by what varies in the scenario.
type labeller struct{ connections, payload, rate bool }

func newLabeller(s *scenarios.Scenario) labeller {
	return labeller{
		connections: len(s.Connections) > 1, payload: len(s.Payloads)+len(s.Sizes) > 1,
		rate: len(s.Rates)+len(s.Ramps) > 1 || s.FindMax != (scenarios.Limit{}),
	}
}

func (l labeller) point(p scenarios.Point) string {
	text := fmt.Sprintf("QoS %d, window %d", p.QoS, p.Window)
	if l.connections {
		text += ", " + count(p.Connections, "connection")
	}
	switch {
	case l.payload && p.Sizes != "":
		text += fmt.Sprintf(", %s B", p.Sizes)
	case l.payload:
		text += fmt.Sprintf(", %d B", p.Payload)
	}
	switch {
	case l.rate && p.RampTo > 0:
		text += fmt.Sprintf(", %s/s", p.Ramp())
	case l.rate && p.Rate > 0:
		text += fmt.Sprintf(", %d/s", p.Rate)
	}
	return text
}

// terminalWidth returns what asks for the width of the terminal that w is, nil when it is none or a line on it cannot be
// drawn again.
func terminalWidth(w io.Writer) func() int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func() int {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
		return defaultWidth
	}
}
