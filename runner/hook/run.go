package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// What is shown of what a command that failed has printed.
const (
	shownLines = 5
	keptOutput = 16 << 10 // bytes, of its end
)

// drainTime is how long a command that has ended may keep its output open by what it has started.
const drainTime = time.Second

// Run runs the command of a hook for a node, counted from 1, at addr. The error says what it printed last.
func (f *File) Run(ctx context.Context, name string, node int, addr string) error {
	command, err := f.command(name, node, addr)
	if err != nil {
		return err
	}
	if len(command) == 0 {
		return fmt.Errorf("there is no hook %s", name)
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	out := &lastBytes{}
	c.Stdout, c.Stderr = out, out
	c.WaitDelay = drainTime
	inOwnGroup(c)
	err = c.Run()
	switch {
	case errors.Is(err, exec.ErrWaitDelay): // it has ended well; a service that it started holds its output
		return nil
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("not done after %v", f.timeout)
	case err == nil:
		return nil
	}
	return fmt.Errorf("%s: %w%s", strings.Join(command, " "), err, out.lines())
}

// lastBytes keeps the end of what is written.
type lastBytes struct{ b []byte }

func (l *lastBytes) Write(p []byte) (int, error) {
	l.b = append(l.b, p...)
	if extra := len(l.b) - keptOutput; extra > 0 {
		l.b = append(l.b[:0], l.b[extra:]...)
	}
	return len(p), nil
}

// lines are the last of them, to stand behind an error.
func (l *lastBytes) lines() string {
	var all []string
	for line := range bytes.Lines(l.b) {
		if s := strings.TrimSpace(strings.ToValidUTF8(string(line), "\uFFFD")); s != "" {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all[max(0, len(all)-shownLines):], "; ")
}
