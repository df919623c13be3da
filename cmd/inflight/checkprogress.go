package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"inflight/runner/probe"
	"inflight/runner/result"
)

// checkProgress tells on standard error how far a check is: on a terminal in one line that is drawn again and again, and a
// line that stays for each violation; elsewhere a line for each row that is not ok, and one for every tenth of the whole.
type checkProgress struct {
	w     io.Writer
	width func() int // nil: not a terminal

	mu    sync.Mutex
	last  probe.Event
	start time.Time
	drawn int
	tenth int

	stop chan struct{}
	done sync.WaitGroup
}

func newCheckProgress(w io.Writer) *checkProgress {
	p := &checkProgress{w: w, width: terminalWidth(w), start: time.Now(), stop: make(chan struct{})}
	if p.width != nil {
		p.done.Go(p.tick)
	}
	return p
}

func (p *checkProgress) close() {
	close(p.stop)
	p.done.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

func (p *checkProgress) talk(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.w, format+"\n", args...)
}

func (p *checkProgress) event(e probe.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = e
	switch r := e.Row; {
	case e.Version != nil:
		p.clear()
		if e.Version.Spoken {
			fmt.Fprintf(p.w, "MQTT %s is spoken\n", e.MQTT)
		} else {
			fmt.Fprintf(p.w, "MQTT %s is not spoken: %s\n", e.MQTT, e.Version.Why)
		}
	case r != nil && r.Outcome == result.CheckViolated:
		p.clear()
		fmt.Fprintf(p.w, "%s (MQTT %s) %s violated: %s\n", r.ID, r.MQTT, r.ViolatedLevel, r.Findings[0].Text)
	case r != nil && r.Outcome == result.CheckInconclusive:
		p.clear()
		fmt.Fprintf(p.w, "%s (MQTT %s) inconclusive: %s\n", r.ID, r.MQTT, r.Why)
	}
	if p.width == nil && e.Total > 0 && e.Done*10/e.Total > p.tenth {
		p.tenth = e.Done * 10 / e.Total
		fmt.Fprintf(p.w, "%d of %d checks, %s\n", e.Done, e.Total, seconds(time.Since(p.start)))
	}
}

func (p *checkProgress) tick() {
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

func (p *checkProgress) clear() {
	if p.drawn > 0 {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.drawn))
		p.drawn = 0
	}
}

func (p *checkProgress) draw() {
	e := p.last
	text := "looking what the broker can do"
	if e.Total > 0 {
		text = fmt.Sprintf("%d of %d  %s  %s", e.Done, e.Total, bar(float64(e.Done)/float64(e.Total), 20), seconds(time.Since(p.start)))
		if len(e.Running) > 0 {
			text += "  " + strings.Join(e.Running, " ")
		}
	}
	line := clip(text, p.width()-1)
	n := utf8.RuneCountInString(line)
	fmt.Fprintf(p.w, "\r%s%s", line, strings.Repeat(" ", max(0, p.drawn-n)))
	p.drawn = n
}
