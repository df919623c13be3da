package staged

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"inflight/broker/store"
)

// holder is the record of which store holds for a client: of the client's copies, those above a sequence count only if
// they are from that store. Those up to it were looked at when the record was written.
//
// It is there because a hold cannot be taken back. One that its node gave up, or died with, can become durable after the
// client has gone on elsewhere, under an identifier that by then has another message, or none. It would look pending:
// on the next resume it would be the newest copy under its identifier, so that a PUBREL releases it a second time and what
// the client was told to be received is dropped, or the next publication on that identifier is taken for its duplicate.
// So a copy names the store that sent it, and [Store.Held] drops what came from another one after the client had left it.
//
// What remains: a session that ends leaves no record, so that the hold of a node that stood still meanwhile can come after
// the end and be found by the next session of the client, when that is resumed.
type holder struct {
	Store string `json:"store"`
	UpTo  uint64 `json:"up_to"` // sequence of the staged stream

	seq uint64 // of the record; 0: there is none
}

// holderRoot and a client begin the subjects of these records.
const holderRoot = "inf.k."

// newInstance names a store among all that ever were.
func newInstance() string { return hash(nuid.Next())[:10] }

// valid reports whether a copy counts. A will's is of whoever publishes it.
func (h *holder) valid(seq uint64, id uint16, by string) bool {
	return h.Store == "" || seq <= h.UpTo || by == h.Store || id == 0
}

// holderOf reads a client's record.
func (s *Store) holderOf(client string) (holder, error) {
	got, err := s.get(sessionsStream, `{"last_by_subj":"`+holderRoot+hash(client)+`"}`)
	if errors.Is(err, store.ErrNotFound) {
		return holder{}, nil
	}
	if err != nil {
		return holder{}, err
	}
	h := holder{seq: got.Message.Seq}
	if len(got.Message.Data) > 0 {
		if err := json.Unmarshal(got.Message.Data, &h); err != nil {
			return holder{}, fmt.Errorf("record of the holder: %w", store.ErrCorrupt)
		}
	}
	return h, nil
}

// becomeHolder writes the record in the place of another one; an empty one says that there is none.
func (s *Store) becomeHolder(client string, old holder, data []byte) error {
	header := nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(old.seq, 10)}}
	if len(data) == 0 {
		header.Set(jetstream.MsgTTLHeader, removedFor.String())
	}
	answer, err := s.askAgainWith(header, holderRoot+hash(client), data, false)
	if err == nil {
		_, _, err = parsePubAck(answer)
	}
	if wrongSequence(err) {
		return store.ErrConflict
	}
	return err
}

// heldCopy is a staged message as its subject names it.
type heldCopy struct {
	seq    uint64
	id     uint16
	by     string // the store that sent it
	retain bool   // the message is to be retained
}

// copies lists what is staged for a client, oldest first.
func (s *Store) copies(ctx context.Context, subject string) ([]heldCopy, error) {
	counts, err := s.subjects(stagedStream, subject+".>")
	if err != nil {
		return nil, err
	}
	names := slices.Collect(maps.Keys(counts))
	found := make([][]heldCopy, len(names))
	err = sideBySide(ctx, len(names), func(ctx context.Context, i int) (err error) {
		found[i], err = s.copiesOf(ctx, subject, names[i], counts[names[i]])
		return err
	})
	all := slices.Concat(found...)
	slices.SortFunc(all, func(a, b heldCopy) int { return cmp.Compare(a.seq, b.seq) })
	return all, err
}

// copiesOf lists the oldest n that are staged under one name, that of an identifier and a store, below the client's subject.
func (s *Store) copiesOf(ctx context.Context, subject, name string, n uint64) (all []heldCopy, err error) {
	number, by, _ := strings.Cut(strings.TrimPrefix(name, subject+"."), ".")
	id, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("subject %q: %w", name, err)
	}
	for next := uint64(1); uint64(len(all)) < n; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		got, err := s.get(stagedStream, fmt.Sprintf(`{"seq":%d,"next_by_subj":%q}`, next, name))
		if errors.Is(err, store.ErrNotFound) {
			break // discarded meanwhile
		}
		if err != nil {
			return nil, err
		}
		m, err := store.Decode(got.Message.Data)
		all = append(all, heldCopy{got.Message.Seq, uint16(id), by, err == nil && m.Retain})
		next = got.Message.Seq + 1
	}
	return all, nil
}

// takeCopies makes this store the holder for a client and lists the copies that count.
func (s *Store) takeCopies(ctx context.Context, client, subject string) (valid []heldCopy, err error) {
	if err := s.landed(); err != nil {
		return nil, err
	}
	h, err := s.holderOf(client)
	if err != nil {
		return nil, err
	}
	end := uint64(0)
	if h.Store != s.instance {
		if end, err = s.lastSeq(stagedStream); err != nil {
			return nil, err
		}
	}
	all, err := s.copies(ctx, subject)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		switch {
		case !h.valid(c.seq, c.id, c.by):
			s.log.Info("a message that came after its client had gone on elsewhere is dropped", "client", client, "identifier", c.id)
			if err := gather(1, func(_ int, done func(error)) { s.deleteCopy(c.seq, done) })[0]; err != nil {
				return nil, err
			}
		case h.Store == s.instance || c.by == s.instance || c.seq <= end: // else the next look drops it
			valid = append(valid, c)
		}
	}
	if h.Store == s.instance {
		return valid, nil
	}
	data, err := json.Marshal(holder{Store: s.instance, UpTo: end})
	if err != nil {
		return nil, err
	}
	return valid, s.becomeHolder(client, h, data)
}

// leaveCopies removes the record: the session is over.
func (s *Store) leaveCopies(client string) error {
	h, err := s.holderOf(client)
	if err != nil || h.Store == "" {
		return err
	}
	return s.becomeHolder(client, h, nil)
}

// lateHolds are this store's own holds that nobody answered for. What is sent after them over the same connection comes
// after them.
type lateHolds struct {
	mu      sync.Mutex
	failed  int
	cleared int
}

func (l *lateHolds) add() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed++
}

// landed returns once every hold that was given up before is in the stream or will never be.
func (s *Store) landed() error {
	l := &s.lateHolds
	l.mu.Lock()
	failed, cleared := l.failed, l.cleared
	l.mu.Unlock()
	if failed == cleared {
		return nil
	}
	subject := stagedRoot + "_.0." + s.instance
	answer, err := s.askAgain(subject, nil, true)
	if err == nil {
		_, _, err = parsePubAck(answer)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.cleared = max(l.cleared, failed)
	l.mu.Unlock()
	return s.purge(subject, 0)
}
