package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"inflight/runner/result"
)

func TestExitCode(t *testing.T) {
	trouble := errors.New("the broker died")
	violated := coded(exitConformance, errors.New("out of order"))
	for _, test := range []struct {
		why  string
		err  error
		want int
	}{
		{"success", nil, exitOK},
		{"anything unmarked is trouble", trouble, exitTrouble},
		{"the user's mistake", usagef("window 0"), exitUsage},
		{"a mark survives wrapping", fmt.Errorf("arm A: %w", usagef("no such target")), exitUsage},
		{"nothing to mark", usage(nil), exitOK},
		{"a violation was seen, whatever else ended the run", errors.Join(trouble, violated), exitConformance},
		{"in either order", errors.Join(violated, trouble), exitConformance},
		{"trouble twice", errors.Join(trouble, trouble), exitTrouble},
		{"the joined problems of a command line", usage(errors.Join(trouble, trouble)), exitUsage},
		{"nothing joined", errors.Join(nil, nil), exitOK},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("%s: exit code %d, want %d", test.why, got, test.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	good := result.Cell{Arm: "A", QoS: 2, Window: 1, Ledger: &result.Ledger{Published: 5, Delivered: 5}}
	disorder := good
	disorder.Order = result.Order{Violations: 1, First: "PUBREC 3 before 2"}
	loss := good
	loss.Arm, loss.Ledger = "B", &result.Ledger{Lost: 2, First: "message 7"}
	for _, test := range []struct {
		why   string
		cells []result.Cell
		want  string // "": no error
	}{
		{"nothing wrong", []result.Cell{good, good}, ""},
		{"nothing measured is not a violation", nil, ""},
		{"an acknowledgement out of order", []result.Cell{good, disorder}, "1 cell is incorrect, the numbers are struck out: arm A, pass 0, QoS 2, window 1: 1 acknowledgement out of order (PUBREC 3 before 2)"},
		{"a loss", []result.Cell{loss, loss}, "2 cells are incorrect, the numbers are struck out: arm B, pass 0, QoS 2, window 1: 2 lost, 0 duplicated, 0 reordered, 0 corrupt (message 7)"},
	} {
		err := verdict(&result.Result{Cells: test.cells})
		switch {
		case test.want == "" && err != nil, test.want != "" && (err == nil || err.Error() != test.want):
			t.Errorf("%s: %v, want %s", test.why, err, test.want)
		case err != nil && exitCode(err) != exitConformance:
			t.Errorf("%s: exit code %d", test.why, exitCode(err))
		}
	}
}

// Errors of package runner reach the user through explain: a signal is the reason for what failed because of it.
func TestExplain(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&signalError{os.Interrupt})
	if err := explain(ctx, errors.New("context canceled: pass 1")); err.Error() != "interrupted" {
		t.Errorf("%v, want the signal alone", err)
	}
	if err := explain(t.Context(), errors.New("the broker died")); err.Error() != "the broker died" {
		t.Errorf("%v, want it unchanged", err)
	}
	if err := explain(ctx, nil); err != nil {
		t.Errorf("%v for a run that had ended before the signal", err)
	}
}
