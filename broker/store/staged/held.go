package staged

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"inflight/broker/store"
)

// impossible is a last sequence, or a last message id, that no stream has: a publish that expects it stores nothing.
const impossible = "18446744073709551615"

// stored is a message as JetStream's MSG.GET returns it.
type stored struct {
	Error   *apiError `json:"error"`
	Message *struct {
		Subject string    `json:"subject"`
		Seq     uint64    `json:"seq"`
		Header  []byte    `json:"hdrs"`
		Data    []byte    `json:"data"`
		Time    time.Time `json:"time"`
	} `json:"message"`
}

// get reads one message from the leader of a stream. Followers are not asked: they may lag.
func (s *Store) get(stream, body string) (*stored, error) {
	data, err := s.askAgain("$JS.API.STREAM.MSG.GET."+stream, []byte(body), true)
	if err != nil {
		return nil, err
	}
	got, err := parseStored(data)
	if err != nil {
		return nil, fmt.Errorf("read from stream %s: %w", stream, err)
	}
	return got, nil
}

// parseStored reads what a MSG.GET answers; ErrNotFound where it says that there is no such message.
func parseStored(data []byte) (*stored, error) {
	var got stored
	switch err := json.Unmarshal(data, &got); {
	case err != nil:
		return nil, fmt.Errorf("answer of the store: %w", err)
	case got.Error != nil && got.Error.ErrCode == codeNoMessage || got.Error == nil && got.Message == nil:
		return nil, store.ErrNotFound
	case got.Error != nil:
		return nil, got.Error
	}
	return &got, nil
}

// Fetch reads a staged message back.
func (s *Store) Fetch(ref store.Ref, done func(*store.Message, error)) {
	s.read(stagedStream, uint64(ref), done)
}

// Discard lets a held copy go without delivering it.
func (s *Store) Discard(client string, ref store.Ref) { s.discard(client, uint64(ref), 0) }

// Held lists the staged messages of a client that were not released, oldest first. A newer message under the same
// identifier replaces an older one; copies whose release is already durable are discarded. From here on what other stores
// still have under way for the client does not count, see holder.
func (s *Store) Held(ctx context.Context, client string) ([]store.Held, error) {
	t := s.lease(client)
	defer t.giveBack()
	if err := s.trust(ctx); err != nil {
		return nil, fmt.Errorf("held messages: %w", err)
	}
	all, err := s.takeCopies(ctx, client, t.subject)
	if err != nil {
		return nil, fmt.Errorf("held messages: %w", err)
	}
	byID := make(map[uint16]uint64)
	for _, c := range all {
		byID[c.id] = c.seq
	}
	refs := make([]ref, len(all))
	var open []int // of refs, whose release this node knows nothing of
	for i, c := range all {
		refs[i] = ref{seq: c.seq, id: c.id, released: byID[c.id] != c.seq || t.isReleased(c.seq)}
		if !refs[i].released {
			open = append(open, i)
		}
	}
	err = sideBySide(ctx, len(open), func(ctx context.Context, k int) (err error) {
		r := &refs[open[k]]
		r.msg, r.released, err = s.isReleased(ctx, store.Ref(r.seq))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("held messages: %w", err)
	}
	var held []store.Held
	for _, i := range open { // oldest first: of two retained messages the later one stays
		r := &refs[i]
		if !r.released {
			held = append(held, store.Held{ID: r.id, Ref: store.Ref(r.seq)})
		} else if all[i].retain {
			if err := s.finishRelease(r.seq, r.msg); err != nil {
				return nil, fmt.Errorf("held messages: %w", err)
			}
		}
	}
	s.reset(t, refs)
	return held, nil
}

// maxLooks is how many questions about the copies of one client are asked at once.
const maxLooks = 64

// sideBySide calls f for 0 to n-1, some at a time: a session may have thousands of copies, and one answer takes as long as
// many. The first error ends it.
func sideBySide(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(maxLooks)
	for i := range n {
		if inner.Err() != nil {
			break
		}
		group.Go(func() error { return f(inner, i) })
	}
	return cmp.Or(group.Wait(), ctx.Err())
}

// reset tells a tracker what the stream holds for its client.
func (s *Store) reset(t *tracker, found []ref) {
	queue, gone := t.reset(found)
	s.guard.gone(gone...)
	if queue {
		s.discards.add(t)
	}
}

// isReleased asks the delivery stream whether, and where, it has the release of ref, inside its duplicate window. Nothing is stored: the duplicate check comes
// first, and then a condition fails that no stream meets. A replicated stream must find it before the raft group does,
// which is so for the last sequence; a stream of one replica looks at the last sequence before it looks for duplicates, but
// at the last message id after.
func (s *Store) isReleased(ctx context.Context, ref store.Ref) (at uint64, released bool, err error) {
	for {
		msg := nats.NewMsg(s.published + "probe")
		msg.Header.Set(jetstream.MsgIDHeader, s.messageID(ref))
		if s.cfg.Replicas > 1 {
			msg.Header.Set(jetstream.ExpectedLastSeqHeader, impossible)
		} else {
			msg.Header.Set(jetstream.ExpectedLastMsgIDHeader, impossible)
		}
		type answer struct {
			seq       uint64
			duplicate bool
			err       error
		}
		ch := make(chan answer, 1)
		s.calls.send(msg, func(data []byte, err error) {
			var a answer
			if a.err = err; err == nil {
				a.seq, a.duplicate, a.err = parsePubAck(data)
			}
			ch <- a
		})
		a := <-ch
		var api *apiError
		switch {
		case a.err == nil:
			return a.seq, a.duplicate, nil
		case errors.As(a.err, &api) && (api.ErrCode == codeWrongSequence || api.ErrCode == codeWrongLastID):
			return 0, false, nil
		case errors.As(a.err, &api) && api.ErrCode == codeDuplicateBusy:
			// Its release is on its way; wait for it.
			select {
			case <-ctx.Done():
				return 0, false, ctx.Err()
			case <-time.After(busyWait):
			}
		default:
			return 0, false, a.err
		}
	}
}

// finishRelease does for a released copy, before it is discarded, what whoever released it may not have come to.
func (s *Store) finishRelease(seq, delivery uint64) error {
	got, err := s.get(stagedStream, `{"seq":`+strconv.FormatUint(seq, 10)+`}`)
	if errors.Is(err, store.ErrNotFound) {
		return nil // it was discarded meanwhile
	}
	if err != nil {
		return err
	}
	return s.keepRetained(got.Message.Data, delivery)
}

// Forget drops everything that is staged for a client.
func (s *Store) Forget(_ context.Context, client string) error {
	t := s.lease(client)
	defer s.retire(t)
	defer t.giveBack()
	if err := s.purge(t.subject+".>", 0); err != nil {
		return fmt.Errorf("forget held messages: %w", err)
	}
	if err := s.leaveCopies(client); err != nil {
		return fmt.Errorf("forget held messages: %w", err)
	}
	s.reset(t, nil)
	return nil
}
