package staged

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A server that needs longer for an answer than the first attempt has is waited for; one whose answer got lost is asked
// again soon; one that never answers is given up with the caller's time.
func TestPersistWaitsForASlowServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		takes  func(attempt int) time.Duration
		by     time.Duration // answered; 0: never
	}{
		{"at once", func(int) time.Duration { return 0 }, time.Millisecond},
		{"each answer takes 9 s", func(int) time.Duration { return 9 * time.Second }, time.Minute},
		{"each answer takes 19 s", func(int) time.Duration { return 19 * time.Second }, 2 * time.Minute},
		{"the first two are lost", func(n int) time.Duration { return map[bool]time.Duration{true: time.Hour}[n <= 2] }, 6 * time.Second},
		{"all are lost", func(int) time.Duration { return time.Hour }, 0},
	} {
		t.Run(c.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				began, attempts := time.Now(), 0
				err := persist(ctx, func(ctx context.Context) error {
					attempts++
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(c.takes(attempts)):
						return nil
					}
				})
				took := time.Since(began)
				switch {
				case c.by == 0 && (!errors.Is(err, context.DeadlineExceeded) || took != 3*time.Minute):
					t.Errorf("%v after %v", err, took)
				case c.by > 0 && (err != nil || took > c.by):
					t.Errorf("%v after %v and %d attempts, want an answer by %v", err, took, attempts, c.by)
				}
			})
		})
	}
}
