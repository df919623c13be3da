package journal

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"inflight/broker/store"
)

const (
	// pageBytes bounds the batches that are kept after they were read back.
	pageBytes = 4 << 20
	// aheadBatches and aheadBytes bound what is read at once where the batch that was read last is near.
	aheadBatches = 32
	aheadBytes   = 512 << 10
)

// pages keeps the batches that were read back last, for all readers of a store. Feeds that are behind are mostly behind at
// about the same place: each batch is then read once, and is in memory once. What is kept is never changed.
type pages struct {
	wire    *wire
	life    context.Context // of the store: nobody's reading ends with somebody else's request
	flights singleflight.Group

	mu         sync.Mutex
	generation uint64           // of the journal: grows when it may be another one
	kept       map[uint64]*page // by sequence
	order      []uint64         // of kept, oldest first
	bytes      int
}

// page is a batch. Its messages are decoded when the first reader asks for them, once for all.
type page struct {
	size    int
	records []record
	bodies  []atomic.Pointer[store.Message] // in memory of their own: a message that is kept keeps no batch
}

func newPage(seq uint64, data []byte) (*page, error) {
	b, err := open(data)
	var records []record
	if err == nil {
		records, err = b.decodeAll(nil)
	}
	if err != nil {
		return nil, fmt.Errorf("batch %d: %w", seq, store.ErrCorrupt)
	}
	return &page{len(data), records, make([]atomic.Pointer[store.Message], len(records))}, nil
}

// message returns the message of a record.
func (p *page) message(index int) (*store.Message, error) {
	if index >= len(p.records) {
		return nil, store.ErrCorrupt
	}
	if m := p.bodies[index].Load(); m != nil {
		return m, nil
	}
	m, err := store.Decode(bytes.Clone(p.records[index].data))
	if err == nil && !p.bodies[index].CompareAndSwap(nil, m) {
		m = p.bodies[index].Load()
	}
	return m, err
}

// forget is called when the journal may not be the one that it was: its sequences may have other batches.
func (p *pages) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.generation++
	p.kept, p.order, p.bytes = nil, nil, 0
}

// look returns a batch that is kept, nil otherwise, and the generation of the journal.
func (p *pages) look(seq uint64) (pg *page, generation uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept[seq], p.generation
}

func (p *pages) keep(generation, seq uint64, pg *page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.kept[seq]; there || generation != p.generation {
		return
	}
	if p.kept == nil {
		p.kept = make(map[uint64]*page)
	}
	p.kept[seq] = pg
	p.order = append(p.order, seq)
	p.bytes += pg.size
	for p.bytes > pageBytes && len(p.order) > 1 {
		oldest := p.order[0]
		p.order = p.order[1:]
		p.bytes -= p.kept[oldest].size
		delete(p.kept, oldest)
	}
}

// get reads the batch at seq, with what is behind it if ahead is set; [store.ErrNotFound] when it is not there any more.
func (p *pages) get(ctx context.Context, seq uint64, ahead bool) (*page, error) {
	pg, generation := p.look(seq)
	if pg != nil {
		return pg, nil
	}
	// A flight belongs to one generation: who comes after the journal was replaced does not get what was read before.
	key := strconv.FormatUint(generation, 36) + "." + strconv.FormatUint(seq, 36)
	flight := p.flights.DoChan(key, func() (any, error) { return p.fetch(generation, seq, ahead) })
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case got := <-flight:
		if got.Err != nil {
			return nil, got.Err
		}
		return got.Val.(*page), nil
	}
}

func (p *pages) fetch(generation, seq uint64, ahead bool) (*page, error) {
	if pg, now := p.look(seq); pg != nil && now == generation { // another flight has just brought it
		return pg, nil
	}
	var first *page
	if ahead {
		batches, _ := p.wire.read(p.life, journalStream, seq, aheadBatches, aheadBytes)
		for _, b := range batches {
			pg, err := newPage(b.seq, b.data)
			if b.seq == seq {
				if err != nil {
					return nil, err
				}
				first = pg
			}
			if err == nil {
				p.keep(generation, b.seq, pg)
			}
		}
	}
	if first != nil {
		return first, nil
	}
	data, err := p.wire.get(p.life, seq)
	if err != nil {
		return nil, err
	}
	pg, err := newPage(seq, data)
	if err == nil {
		p.keep(generation, seq, pg)
	}
	return pg, err
}

// reader reads messages from the journal, for one goroutine. It holds the batch that it read last, because the messages of
// a queue are mostly neighbours.
type reader struct {
	pages      *pages
	generation uint64
	seq        uint64
	page       *page
}

func (s *Store) newReader() *reader { return &reader{pages: &s.pages} }

// message reads the message at a position. It is shared, and not to be changed.
func (r *reader) message(ctx context.Context, p pos) (*store.Message, error) {
	if err := r.turnTo(ctx, p.seq()); err != nil {
		return nil, err
	}
	return r.page.message(p.index())
}

// bytes reads the encoded message at a position, a view that is not to be changed.
func (r *reader) bytes(ctx context.Context, p pos) ([]byte, error) {
	if err := r.turnTo(ctx, p.seq()); err != nil {
		return nil, err
	}
	if p.index() >= len(r.page.records) {
		return nil, store.ErrCorrupt
	}
	return r.page.records[p.index()].data, nil
}

func (r *reader) turnTo(ctx context.Context, seq uint64) error {
	_, now := r.pages.look(seq)
	if r.page != nil && r.seq == seq && r.generation == now {
		return nil
	}
	near := r.page != nil && r.generation == now && seq > r.seq && seq <= r.seq+aheadBatches
	pg, err := r.pages.get(ctx, seq, near)
	r.page, r.seq, r.generation = pg, seq, now
	return err
}
