package target

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// One attempt at a round trip. A broker that has just come up may need longer than the first bound for its first client,
// so each failure gives the next attempt more.
const (
	attemptBound    = 3 * time.Second
	attemptStep     = 500 * time.Millisecond
	attemptBoundMax = 6 * time.Second
	firstPause      = 20 * time.Millisecond // between attempts, doubled each time
	longestPause    = 500 * time.Millisecond
)

// addressTimeout bounds the attempts on a broker that should be running already.
const addressTimeout = 10 * time.Second

// errReadyTimeout is why waiting ended; users see a NotReadyError.
var errReadyTimeout = errors.New("not ready in time")

// readiness is the waiting for one broker.
type readiness struct {
	broker  *Broker
	timeout time.Duration
	run     string // tells its clients and topics from those of other runs
}

// ready returns once a round trip was done on every node, and for a cluster from the first node to the last; or with the
// broker's *DeadError, a *NotReadyError, or what ended ctx.
func (b *Broker) ready(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(timeout, func() { cancel(errReadyTimeout) }).Stop()
	go func() {
		select {
		case <-b.died:
			cancel(b.Err())
		case <-ctx.Done():
		}
	}()

	var seed [4]byte
	rand.Read(seed[:]) // never fails
	r := &readiness{broker: b, timeout: timeout, run: "r" + hex.EncodeToString(seed[:])}
	// The first client of a cluster often makes what all nodes share. It comes when every node is well, and alone: three
	// first clients at once, before there was a leader, kept a nats-server cluster busy with itself for 10 s.
	rest := make([]int, len(b.addrs))
	for i := range rest {
		rest[i] = i
	}
	if err := r.all(cancel, rest, func(i int) error { return r.healthy(ctx, i) }); err != nil {
		return err
	}
	for _, some := range [][]int{rest[:1], rest[1:]} {
		if err := r.all(cancel, some, func(i int) error { return r.check(ctx, fmt.Sprintf("%sn%d", r.run, i+1), i, i) }); err != nil {
			return err
		}
	}
	if last := len(b.addrs) - 1; last > 0 && b.Delivers() {
		return r.check(ctx, r.run+"x", 0, last)
	}
	return nil
}

// all calls f for each of the nodes at once; after the first error the others need not try on.
func (r *readiness) all(cancel context.CancelCauseFunc, nodes []int, f func(i int) error) error {
	var each errgroup.Group
	for _, i := range nodes {
		each.Go(func() error {
			err := f(i)
			if err != nil {
				cancel(err)
			}
			return err
		})
	}
	return each.Wait()
}

// healthy waits until node i says of itself that it is well, if it has a way to say so.
func (r *readiness) healthy(ctx context.Context, i int) error {
	if !r.broker.Managed() || r.broker.healthURLs[i] == "" {
		return nil
	}
	// No connection is kept: the next request may be minutes away, of another broker.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return r.retry(ctx, i, i, func(_ int, bound time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		return getHealth(ctx, client, r.broker.healthURLs[i])
	})
}

// getHealth is an error unless the answer is 200.
func getHealth(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	const enough = 200 // bytes of an explanation
	text, _ := io.ReadAll(io.LimitReader(answer.Body, enough))
	return fmt.Errorf("%s says %s: %s", url, answer.Status, strings.TrimSpace(string(text)))
}

// check tries until a message published on node from arrives on node to. name is unique in the run, at most 12 letters
// and digits.
func (r *readiness) check(ctx context.Context, name string, from, to int) error {
	return r.retry(ctx, from, to, func(attempt int, bound time.Duration) error {
		return roundTrip(ctx, r.broker.addrs[from], r.broker.addrs[to], fmt.Sprintf("%sa%d", name, attempt), r.broker.Delivers(), bound)
	})
}

// retry tries until it works, cannot work, or ctx ends. What is tried concerns node to, and node from where it is another.
func (r *readiness) retry(ctx context.Context, from, to int, try func(attempt int, bound time.Duration) error) error {
	var last error
	bound, pause := attemptBound, firstPause
	for attempt := 1; ; attempt++ {
		err := try(attempt, bound)
		if err == nil {
			return nil
		}
		if last == nil || !errors.Is(err, context.Canceled) {
			last = err // what the attempt was waiting for, also when it was cut short
		}
		if permanent(err) || (!r.broker.Managed() && nobodyThere(err)) {
			return r.failure(from, to, last)
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errReadyTimeout) {
				return cause
			}
			return r.failure(from, to, fmt.Errorf("not ready after %v: %w", r.timeout, last))
		case <-time.After(pause):
		}
		bound, pause = min(bound+attemptStep, attemptBoundMax), min(2*pause, longestPause)
	}
}

// nobodyThere reports whether there is nothing that could become ready.
func nobodyThere(err error) bool {
	var dns *net.DNSError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &dns)
}

// failure is the error of node to.
func (r *readiness) failure(from, to int, cause error) error {
	e := &NotReadyError{Target: r.broker.program.spec.Raw, Cause: cause}
	if !r.broker.Managed() {
		e.Cause = fmt.Errorf("%w (is an MQTT 3.1.1 broker listening there?)", cause)
		return e
	}
	processes := r.broker.running()
	if from != to {
		e.Cause = fmt.Errorf("a message published on node %s does not arrive here: %w", processes[from].name, cause)
	}
	p := processes[to]
	e.Node, e.LastLines, e.LogPath = p.name, p.lastLines(), p.logPath
	return e
}
