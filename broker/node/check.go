package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// What a broker uses of an account: its own subjects, which include those on which it gets answers, and the JetStream API.
const (
	root    = "inf."
	inboxes = "inf.i"
)

// leaderWait bounds how long a check waits for a cluster that has just started, and askWait one question to it: a cluster
// without a leader leaves some unanswered.
const (
	leaderWait = 15 * time.Second
	askWait    = time.Second
)

// minVersion is the oldest NATS server that the store works with: since 2.14 a consumer can be moved. Before 2.12 the leader
// of a replicated stream noted the message id of a publish whose condition fails, which is how the store asks whether a
// message was released; and before 2.10 consumers had one filter and streams no metadata.
var minVersion = [3]int{2, 14, 0}

// Error numbers of the JetStream API that decide something here.
const (
	codeNoPeers       = 10005 // not enough servers for the replicas
	codeUnavailable   = 10008 // no leader at the moment
	codeNotForAccount = 10039
	codeNoCluster     = 10074 // replicas on a server of its own
	codeNotEnabled    = 10076
)

// check connects for a moment and looks at everything that a broker needs, so that what is missing is said at the start and
// not as a time-out of the first client.
func (r *Remote) check(ctx context.Context, replicas int) error {
	if err := r.checkServer(ctx); err != nil {
		return err
	}
	nc, err := r.dial(nats.Name("inflight broker: check"), nats.NoReconnect())
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := checkJetStream(ctx, nc); err != nil {
		return fmt.Errorf("NATS (%s): %w", &r.servers, err)
	}
	if err := checkReplicas(ctx, nc, replicas); err != nil {
		return fmt.Errorf("NATS (%s): %w", &r.servers, err)
	}
	return nil
}

// checkServer looks at the version, and at what the user may do.
func (r *Remote) checkServer(ctx context.Context) error {
	var refused refusals
	closed := make(chan struct{})
	nc, err := r.dial(nats.Name("inflight broker: check"), nats.NoReconnect(), nats.ErrorHandler(refused.note),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		return err
	}
	err = newEnough(nc.ConnectedServerVersion())
	r.maxPayload = nc.MaxPayload()
	if err == nil {
		err = tryPermissions(ctx, nc)
	}
	// Callbacks come one after the other, and that of the end is the last: all refusals are known then.
	nc.Close()
	<-closed
	if err == nil {
		err = refused.err()
	}
	if err != nil {
		return fmt.Errorf("NATS (%s): %w", &r.servers, err)
	}
	return nil
}

// newEnough refuses a server that the store does not work with.
func newEnough(version string) error {
	var have [3]int
	number, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	for i, part := range strings.SplitN(number, ".", 3) {
		n, err := strconv.Atoi(part)
		if err != nil {
			return fmt.Errorf("the server has version %q, want %s or newer", version, showVersion(minVersion))
		}
		have[i] = n
	}
	if slices.Compare(have[:], minVersion[:]) < 0 {
		return fmt.Errorf("the server has version %s, want %s or newer: upgrade it", version, showVersion(minVersion))
	}
	return nil
}

func showVersion(v [3]int) string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// tryPermissions publishes to, and subscribes to, one subject of each kind. None of it has an effect: no stream takes a
// message that is for another one, and there is no stream of the name.
func tryPermissions(ctx context.Context, nc *nats.Conn) error {
	const nobody = "INF_check"
	for _, kind := range []string{"c", "h", "i", "m", "o", "q", "r", "s"} {
		m := nats.NewMsg(root + kind + ".check.check")
		m.Header.Set("Nats-Expected-Stream", nobody)
		if err := nc.PublishMsg(m); err != nil {
			return err
		}
	}
	for _, what := range []string{
		"INFO", "STREAM.NAMES", "STREAM.INFO." + nobody, "STREAM.PURGE." + nobody, "STREAM.MSG.GET." + nobody,
		"CONSUMER.CREATE." + nobody + ".c", "CONSUMER.INFO." + nobody + ".c", "CONSUMER.DELETE." + nobody + ".c",
		"CONSUMER.NAMES." + nobody, "CONSUMER.MSG.NEXT." + nobody + ".c",
	} {
		if err := nc.Publish("$JS.API."+what, nil); err != nil {
			return err
		}
	}
	if err := nc.Publish("$JS.ACK."+nobody+".c.1.1.1.1.0", nil); err != nil {
		return err
	}
	for _, kind := range []string{"c", "d", "i", "q", "w"} {
		if _, err := nc.SubscribeSync(root + kind + ".check.check"); err != nil {
			return err
		}
	}
	return nc.FlushWithContext(ctx)
}

// refusals gathers what the server does not permit.
type refusals struct {
	mu   sync.Mutex
	what []string
}

func (r *refusals) note(_ *nats.Conn, _ *nats.Subscription, err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	_, what, _ := strings.Cut(strings.ReplaceAll(err.Error(), "\n", " "), "Permissions Violation for ")
	r.mu.Lock()
	defer r.mu.Unlock()
	if what != "" {
		what = strings.ToLower(what[:1]) + what[1:] // publish to, subscription to
	}
	r.what = append(r.what, what)
}

func (r *refusals) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.what) == 0 {
		return nil
	}
	const shown = 3
	what := strings.Join(r.what[:min(shown, len(r.what))], ", ")
	if more := len(r.what) - shown; more > 0 {
		what += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("the user has no permission for %s: let it publish to %s>, $JS.API.> and $JS.ACK.>, and subscribe to %[2]s>", what, root)
}

// checkJetStream waits until JetStream answers, for a cluster that has just started.
func checkJetStream(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	for {
		err := request(ctx, nc, "$JS.API.INFO", nil, nil)
		var api *APIError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &api) && api.ErrCode == codeNotForAccount:
			return fmt.Errorf("the account has no JetStream: enable it for the account (%w)", err)
		case errors.Is(err, nats.ErrNoResponders), errors.As(err, &api) && api.ErrCode == codeNotEnabled:
			return fmt.Errorf("the server has no JetStream: enable it (nats-server -js) (%w)", err)
		case !errors.Is(err, errNoAnswer) && (!errors.As(err, &api) || api.ErrCode != codeUnavailable):
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("JetStream has no leader: a majority of its servers must be up (%w)", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// checkReplicas makes a stream with as many replicas, and removes it, unless the broker's streams are there already: those
// may go on with some of their servers away.
func checkReplicas(ctx context.Context, nc *nats.Conn, replicas int) error {
	if replicas < 2 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	const name = "INF_check"
	for {
		names, err := streams(ctx, nc)
		if err == nil && slices.ContainsFunc(names, func(s string) bool { return s != name }) {
			return nil
		}
		if err == nil {
			body := fmt.Sprintf(`{"name":%q,"subjects":[%q],"retention":"limits","storage":"memory","max_msgs":1,"discard":"old","num_replicas":%d}`,
				name, root+"check", replicas)
			err = request(ctx, nc, "$JS.API.STREAM.CREATE."+name, []byte(body), nil)
		}
		if err == nil {
			return request(ctx, nc, "$JS.API.STREAM.DELETE."+name, nil, nil)
		}
		var api *APIError
		if !errors.Is(err, errNoAnswer) && (!errors.As(err, &api) || api.ErrCode != codeNoPeers && api.ErrCode != codeUnavailable) {
			if api != nil && api.ErrCode == codeNoCluster {
				return fmt.Errorf("%d replicas need as many servers in a cluster, and this server is not in one: use --replicas 1 (%w)", replicas, err)
			}
			return fmt.Errorf("a stream of %d replicas: %w", replicas, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d replicas need as many servers with JetStream in the cluster: start more, or use fewer --replicas (%w)", replicas, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
