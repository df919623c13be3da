package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"

	"github.com/nats-io/nuid"

	"inflight/broker/store"
)

const (
	// chunkBytes is how much of a snapshot goes into one message.
	chunkBytes = 512 << 10
	// keepSnapshots is how many snapshots there are: the older one is for a journal whose end was lost with the machine.
	keepSnapshots = 2
	// carryBytes bounds what is carried forward at a time.
	carryBytes = 256 << 10
	// batchCost counts for a batch beside its bytes, so that many small ones are not replayed for ever.
	batchCost = 512
)

// keeper keeps the journal short. What it does is work for one node: the one whose batch makes the journal long enough
// does it, so no node need ask another. If that one fails, the next such batch finds another.
type keeper struct {
	due  chan struct{}
	turn int64
}

// duty is called after each batch, under Store.mu.
func (k *keeper) duty(st *state, every int64, mine bool) {
	turn := st.grown / every
	if turn > k.turn && mine {
		k.kick()
	}
	k.turn = turn
}

func (k *keeper) kick() {
	select {
	case k.due <- struct{}{}:
	default:
	}
}

// keep does what is due until the store ends.
func (s *Store) keep() {
	for {
		select {
		case <-s.stop:
			return
		case <-s.keeper.due:
		}
		if err := s.shorten(s.life); err != nil && s.life.Err() == nil && !errors.Is(err, store.ErrClosed) {
			s.log.Warn("the journal could not be shortened and is tried again later", "error", err)
		}
	}
}

// shorten carries forward what old batches still hold, takes a snapshot, and trims the journal before it.
func (s *Store) shorten(ctx context.Context) error {
	if err := s.carry(ctx); err != nil {
		return fmt.Errorf("carry forward: %w", err)
	}
	s.mu.Lock()
	applied := s.st.applied
	data := s.st.encode(nil)
	s.mu.Unlock()
	if err := s.save(ctx, applied, data); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	s.mu.Lock()
	bound := min(applied+1, s.st.journal.lowest(), s.st.journal.since(s.cfg.Every))
	s.mu.Unlock()
	r := record{kind: kindTrim, ref: pos(bound)}
	if _, err := s.do(ctx, &r); err != nil {
		return fmt.Errorf("trim: %w", err)
	}
	s.mu.Lock()
	first := s.st.journal.first
	s.mu.Unlock()
	if err := s.wire.purge(ctx, journalStream, `{"seq":`+strconv.FormatUint(first, 10)+`}`); err != nil {
		return fmt.Errorf("trim: %w", err)
	}
	return nil
}

// carry appends old messages that are still needed again, so that the batches that they are in can be trimmed: a session
// that is away for a year, or a retained message, must not keep a year of journal. It leaves alone what is young, and a
// journal that is no more than twice as large as what is needed of it.
func (s *Store) carry(ctx context.Context) error {
	read := s.newReader()
	for {
		s.mu.Lock()
		x := &s.st.journal
		target := x.since(max(s.cfg.Every, 2*x.live))
		var from []pos
		for _, m := range x.oldest(target, carryBytes) {
			from = append(from, m.pos)
		}
		s.mu.Unlock()
		if len(from) == 0 {
			return nil
		}
		var last chan error
		for _, p := range from {
			data, err := read.bytes(ctx, p)
			if errors.Is(err, store.ErrNotFound) {
				s.log.Error("a message is gone from the journal", "position", p)
				data = nil // says so
			} else if err != nil {
				return err
			}
			r := record{kind: kindCarry, ref: p, data: data}
			last = make(chan error, 1)
			done := last
			s.start(&r, op{fn: func(_ pos, err error) { done <- err }})
		}
		select {
		case err := <-last:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// manifest says where a snapshot is.
type manifest struct {
	ID      string `json:"id"`
	Applied uint64 `json:"applied"`
	Chunks  int    `json:"chunks"`
	Bytes   int    `json:"bytes"`
	Sum     uint32 `json:"crc32c"`
	First   uint64 `json:"first"` // sequence of the first chunk
}

// save writes a snapshot, the manifest last, and removes those before the last keepSnapshots.
func (s *Store) save(ctx context.Context, applied uint64, data []byte) error {
	m := manifest{ID: nuid.Next(), Applied: applied, Bytes: len(data), Sum: crc32.Checksum(data, castagnoli)}
	for rest := data; len(rest) > 0; m.Chunks++ {
		n := min(len(rest), chunkBytes)
		seq, err := s.wire.publish(ctx, chunks+m.ID+"."+strconv.Itoa(m.Chunks), rest[:n])
		if err != nil {
			return err
		}
		if m.Chunks == 0 {
			m.First = seq
		}
		rest = rest[n:]
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := s.wire.publish(ctx, manifests, text); err != nil {
		return err
	}
	s.log.Debug("snapshot", "sequence", applied, "bytes", len(data))
	all, err := s.manifests(ctx)
	if err != nil {
		return err
	}
	if len(all) > keepSnapshots {
		oldest := all[len(all)-keepSnapshots].First
		return s.wire.purge(ctx, snapshotStream, `{"seq":`+strconv.FormatUint(oldest, 10)+`}`)
	}
	return nil
}

// manifests lists the snapshots, oldest first.
func (s *Store) manifests(ctx context.Context) (out []manifest, err error) {
	for next := uint64(1); ; {
		got, err := s.wire.find(ctx, snapshotStream, fmt.Sprintf(`{"seq":%d,"next_by_subj":%q}`, next, manifests))
		if errors.Is(err, store.ErrNotFound) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		next = got.seq + 1
		var m manifest
		if err := json.Unmarshal(got.data, &m); err != nil {
			s.log.Error("manifest of a snapshot is corrupt", "sequence", got.seq)
			continue
		}
		out = append(out, m)
	}
}

// load reads the newest snapshot that belongs to the journal that info describes, or, without one, the newest that there
// is; a new state when there is none.
func (s *Store) load(ctx context.Context, info *extentInfo) (*state, error) {
	for {
		st, err := s.tryLoad(ctx, info)
		if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
			return st, err
		}
		select { // a young cluster, or a leader on the move
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *Store) tryLoad(ctx context.Context, info *extentInfo) (*state, error) {
	all, err := s.manifests(ctx)
	if err != nil {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	for i := len(all) - 1; i >= 0; i-- {
		st, err := s.loadOne(ctx, all[i])
		if err == nil && info != nil {
			err = s.belongs(ctx, st, info)
		}
		switch {
		case err == nil:
			return st, nil
		case errors.Is(err, errSnapshot), errors.Is(err, store.ErrNotFound):
			s.log.Error("snapshot is left out", "sequence", all[i].Applied, "error", err)
		default:
			return nil, fmt.Errorf("snapshot at %d: %w", all[i].Applied, err)
		}
	}
	return newState(), nil
}

// belongs reports with an error whether a snapshot is of another journal, or of an end of this one that is lost.
func (s *Store) belongs(ctx context.Context, st *state, info *extentInfo) error {
	switch {
	case st.applied > info.last:
		return fmt.Errorf("%w: the journal ends at %d, its end is lost", errSnapshot, info.last)
	case st.applied < info.first:
		return nil
	}
	data, err := s.wire.get(ctx, st.applied)
	if err == nil && st.journal.differs(st.applied, data) {
		err = fmt.Errorf("%w: it is of an end of the journal that is lost", errSnapshot)
	}
	return err
}

func (s *Store) loadOne(ctx context.Context, m manifest) (*state, error) {
	var data []byte
	for i := range m.Chunks {
		got, err := s.wire.find(ctx, snapshotStream, fmt.Sprintf(`{"last_by_subj":"%s%s.%d"}`, chunks, m.ID, i))
		if err != nil {
			return nil, err
		}
		data = append(data, got.data...)
	}
	if len(data) != m.Bytes || crc32.Checksum(data, castagnoli) != m.Sum {
		return nil, errSnapshot
	}
	st, err := restore(data)
	if err == nil && st.applied != m.Applied {
		err = errSnapshot
	}
	return st, err
}

// fit finds the state that the journal goes on from.
func (s *Store) fit(ctx context.Context) (*state, error) {
	info, err := s.extent(ctx)
	if err != nil {
		return nil, err
	}
	st, err := s.load(ctx, &info)
	if err != nil {
		return nil, err
	}
	if st.applied+1 < info.first {
		s.log.Error("the journal begins behind the state: what was between is lost", "journal begins at", info.first, "state ends at", st.applied)
		st.applied = info.first - 1
	}
	return st, nil
}

// extent asks until there is an answer.
func (s *Store) extent(ctx context.Context) (extentInfo, error) {
	for {
		info, err := s.wire.info(ctx, journalStream)
		if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrClosed) || errors.Is(err, errNoJournal) {
			return info, err
		}
		select {
		case <-ctx.Done():
			return info, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
