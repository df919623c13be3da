package journal

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inflight/broker/store"
)

// fakeJournal is what a committer appends to: batches that are sent wait in sent, and a test decides what becomes of them.
type fakeJournal struct {
	c      *committer
	s      *state
	seq    uint64
	sent   [][]byte
	settle []record
	fail   error
	order  []pos // refs of the records that had effect, in order
}

func newFake() *fakeJournal {
	f := &fakeJournal{s: newState()}
	f.c = newCommitter(7, func(_ uint64, data []byte) error {
		if f.fail != nil {
			return f.fail
		}
		f.sent = append(f.sent, append([]byte(nil), data...))
		return nil
	}, func(add func(who, pos, []byte) bool) {
		for i, r := range f.settle {
			if !add(who{client: string(r.client)}, r.ref, r.data) {
				f.settle = f.settle[i+1:]
				return
			}
		}
		f.settle = nil
	}, func() { f.c.ready() })
	return f
}

// put starts a record that is known by n; reported gets what becomes of it.
func (f *fakeJournal) put(t interface{ Fatal(...any) }, n pos, expires int64, reported func(pos, error)) {
	b, err := f.c.begin(recordRoom, false, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := record{kind: kindRelease, client: []byte("nobody"), ref: n}
	f.c.end(r.append(b), op{fn: reported, expires: expires})
}

// store lets a batch that was sent be committed and applied.
func (f *fakeJournal) store(i int) {
	data := f.sent[i]
	f.sent = append(f.sent[:i:i], f.sent[i+1:]...)
	f.seq++
	b, err := open(data)
	if err != nil {
		panic(err)
	}
	if f.s.applyBytes(f.seq, data, f.c.own(b.number)) {
		records, _ := b.decodeAll(nil)
		for _, r := range records {
			if r.kind == kindRelease {
				f.order = append(f.order, r.ref)
			}
		}
		report(f.c.applied(b.number, f.seq, f.s.refused, nil))
	} else if last := f.s.last(b.author); b.number > last+1 {
		f.c.again(last + 1)
	}
}

func numbersTo(n int) (out []pos) {
	for i := range n {
		out = append(out, pos(i+1))
	}
	return out
}

func equal(a, b []pos) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// The first record goes at once; what comes while it is under way goes together.
func TestGroupCommit(t *testing.T) {
	f := newFake()
	const n = 100
	got := make(map[int]pos)
	for i := range n {
		f.put(t, pos(i+1), 1<<62, func(p pos, err error) {
			if err != nil {
				t.Error(err)
			}
			got[i] = p
		})
	}
	if len(f.sent) != 1 {
		t.Fatalf("%d appends are under way, want the first alone", len(f.sent))
	}
	f.store(0)
	if len(got) != 1 || got[0] != at(1, 0) {
		t.Errorf("after the first append %v are reported", got)
	}
	if len(f.sent) != 1 {
		t.Fatalf("%d appends are under way, want the rest as one", len(f.sent))
	}
	f.store(0)
	if len(got) != n || got[n-1] != at(2, n-2) || !equal(f.order, numbersTo(n)) {
		t.Errorf("%d are reported, the last at %d; order %v", len(got), got[n-1], f.order)
	}
	if !f.c.idle() || f.c.pending != 0 {
		t.Errorf("%d bytes are pending", f.c.pending)
	}
}

// A full batch does not wait for the one before it, but there is a limit to that too.
func TestFullBatches(t *testing.T) {
	f := newFake()
	f.c.limit = headerSize + recordRoom // one record is a full batch
	const n = 5
	reported := 0
	for i := range n {
		f.put(t, pos(i+1), 1<<62, func(pos, error) { reported++ })
		if want := min(max(i, 1), maxInFlight); len(f.sent) != want {
			t.Fatalf("after %d records %d appends are under way, want %d", i+1, len(f.sent), want)
		}
	}
	for i := range n {
		f.store(0)
		if reported != i+1 {
			t.Fatalf("after %d appends %d are reported", i+1, reported)
		}
		if left := n - 1 - i; len(f.sent) > maxInFlight || left > 0 && len(f.sent) == 0 {
			t.Fatalf("%d appends are under way, %d left", len(f.sent), left)
		}
	}
	if !f.c.idle() || !equal(f.order, numbersTo(n)) {
		t.Errorf("order %v", f.order)
	}
}

// Whatever is lost, refused, delayed, or stored twice: each record has effect once, in order, and is reported once.
func TestCommitFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFake()
		if rapid.Bool().Draw(t, "small batches") { // two at a time are under way then
			f.c.limit = headerSize + 2*recordRoom
		}
		now := time.Now()
		reports := make(map[int]int)
		n := rapid.IntRange(1, 60).Draw(t, "records")
		started := 0
		for step := 0; started < n || !f.c.idle(); step++ {
			if step > 5000 {
				t.Fatal("no end")
			}
			what := rapid.IntRange(0, 9).Draw(t, "what")
			if started == n && what < 4 {
				what = 9
			}
			switch {
			case what < 4:
				i := started
				started++
				f.put(t, pos(started), 1<<62, func(p pos, err error) {
					if err != nil {
						t.Fatalf("record %d: %v", i, err)
					}
					if reports[i]++; p.seq() > f.seq || p.index() >= maxRecords {
						t.Fatalf("record %d is reported at %d, the journal ends at %d", i, p, f.seq)
					}
				})
			case len(f.sent) == 0:
				now = now.Add(resendAfter)
				f.c.tick(now, nil)
			case what == 4: // lost
				f.sent = f.sent[1:]
			case what == 5: // stored, and sent again as if it was not
				f.sent = append(f.sent, f.sent[0])
				f.store(0)
			case what == 6: // refused
				b, _ := open(f.sent[0])
				f.sent = f.sent[1:]
				f.c.nack(b.number, errors.New("no leader"))
			case what == 7 && len(f.sent) > 1: // overtaken
				f.store(1)
			default:
				f.store(0)
			}
		}
		if !equal(f.order, numbersTo(n)) {
			t.Fatalf("order %v", f.order)
		}
		for i := range n {
			if reports[i] != 1 {
				t.Fatalf("record %d was reported %d times", i, reports[i])
			}
		}
		if f.c.pending != 0 {
			t.Fatalf("%d bytes are pending", f.c.pending)
		}
	})
}

func TestExpiry(t *testing.T) {
	f := newFake()
	now := time.Now()
	var errs []error
	for i := range 4 {
		f.put(t, pos(i+1), now.Add(time.Duration(i)*time.Second).UnixNano(), func(_ pos, err error) { errs = append(errs, err) })
	}
	b, _ := open(f.sent[0])
	f.c.nack(b.number, errors.New("no leader"))
	report(f.c.tick(now.Add(-time.Second), nil))
	if len(errs) != 0 {
		t.Fatalf("reported before their time: %v", errs)
	}
	report(f.c.tick(now.Add(2*time.Second), nil)) // one under way, and two that wait
	if len(errs) != 3 {
		t.Fatalf("%d are reported, want 3", len(errs))
	}
	for _, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "no leader") {
			t.Errorf("error %v, want the reason", err)
		}
	}
	// They take effect all the same, as nobody can call an append back.
	for len(f.sent) > 0 {
		f.store(0)
	}
	if len(errs) != 4 || errs[3] != nil || !equal(f.order, numbersTo(4)) {
		t.Errorf("reported %v, order %v", errs, f.order)
	}
}

func TestRefusedRecords(t *testing.T) {
	f := newFake()
	var errs []error
	add := func(r record) {
		b, err := f.c.begin(recordRoom, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.c.end(r.append(b), op{fn: func(_ pos, err error) { errs = append(errs, err) }, expires: 1 << 62})
	}
	add(record{kind: kindSync})
	add(record{kind: kindSync})
	add(record{kind: kindSync})
	add(record{kind: kindForget, epoch: 99})
	add(record{kind: kindSync})
	for len(f.sent) > 0 {
		f.store(0)
	}
	if len(errs) != 5 || !errors.Is(errs[3], errFenced) || errs[2] != nil || errs[4] != nil {
		t.Errorf("reported %v, want only the fourth refused", errs)
	}
}

func TestRoomForMessages(t *testing.T) {
	for _, tc := range []struct {
		reason string
		full   func(f *fakeJournal)
		room   func(f *fakeJournal)
	}{
		{"a full journal", func(f *fakeJournal) { f.c.setSpace(0) }, func(f *fakeJournal) { f.c.setSpace(1 << 20) }},
		{"too much is under way", func(f *fakeJournal) {
			f.c.most = 1000
			for range 3 {
				b, _ := f.c.begin(1000, false, 0)
				r := record{kind: kindPublish, data: make([]byte, 500)}
				f.c.end(r.append(b), op{expires: 1 << 62})
			}
		}, func(f *fakeJournal) { f.store(0); f.store(0) }},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			f := newFake()
			tc.full(f)
			f.put(t, 1, 1<<62, nil) // what brings no message goes on
			if _, err := f.c.begin(1, true, time.Now().Add(-time.Second).UnixNano()); err == nil {
				t.Fatal("a message was taken")
			}
			got := make(chan error, 1)
			go func() {
				b, err := f.c.begin(1, true, 1<<62)
				if err == nil {
					f.c.end(b, op{})
				}
				got <- err
			}()
			select {
			case err := <-got:
				t.Fatalf("a message did not wait: %v", err)
			case <-time.After(20 * time.Millisecond):
			}
			tc.room(f)
			if err := <-got; err != nil {
				t.Error(err)
			}
			f.c.close()
		})
	}
}

func TestCloseReportsAll(t *testing.T) {
	f := newFake()
	n := 0
	for i := range 10 {
		f.put(t, pos(i+1), 1<<62, func(_ pos, err error) {
			if n++; !errors.Is(err, store.ErrClosed) {
				t.Errorf("error %v", err)
			}
		})
	}
	f.c.setSpace(0)
	waits := make(chan error)
	go func() {
		_, err := f.c.begin(1, true, 1<<62)
		waits <- err
	}()
	time.Sleep(time.Millisecond)
	report(f.c.close())
	if err := <-waits; !errors.Is(err, store.ErrClosed) {
		t.Errorf("who waited gets %v", err)
	}
	if n != 10 {
		t.Errorf("%d are reported, want 10", n)
	}
	if _, err := f.c.begin(1, false, 0); !errors.Is(err, store.ErrClosed) {
		t.Errorf("error %v afterwards", err)
	}
}

// What was settled goes with the next batch, before nothing that was asked for later.
func TestSettledGoesAlong(t *testing.T) {
	f := newFake()
	f.settle = []record{{client: []byte("c"), ref: 5, data: list(9)}}
	f.c.settleNow()
	if len(f.sent) != 1 {
		t.Fatalf("%d appends, want one", len(f.sent))
	}
	f.put(t, 1, 1<<62, nil)
	f.settle = []record{{client: []byte("c"), ref: 5, data: list(10)}}
	f.c.settleNow() // an append is under way: it waits
	if len(f.sent) != 1 || f.settle == nil {
		t.Fatalf("%d appends", len(f.sent))
	}
	f.store(0)
	b, _ := open(f.sent[0])
	records, err := b.decodeAll(nil)
	if err != nil || len(records) != 2 || records[0].kind != kindRelease || records[1].kind != kindSettle {
		t.Errorf("batch %+v, %v: want the release and what was settled", records, err)
	}
}

// However much was settled, a batch stays below its limit.
func TestMuchSettled(t *testing.T) {
	f := newFake()
	f.c.limit = 1000
	for range 100 {
		f.settle = append(f.settle, record{client: []byte("c"), ref: 5, data: make([]byte, 100)})
	}
	f.put(t, 1, 1<<62, nil)
	n := 0
	for len(f.sent) > 0 {
		if len(f.sent[0]) > 1000 {
			t.Fatalf("a batch of %d bytes, limit 1,000", len(f.sent[0]))
		}
		b, _ := open(f.sent[0])
		records, _ := b.decodeAll(nil)
		for _, r := range records {
			if r.kind == kindSettle {
				n++
			}
		}
		f.store(0)
		f.c.settleNow()
	}
	if n != 100 {
		t.Errorf("%d are settled, want 100", n)
	}
}

func TestUnknownOutcomes(t *testing.T) {
	f := newFake()
	var errs []error
	for i := range 3 {
		f.put(t, pos(i+1), 1<<62, func(_ pos, err error) { errs = append(errs, err) })
	}
	unknown := errors.New("unknown")
	report(f.c.lost(1, unknown, nil))
	if len(errs) != 1 || !errors.Is(errs[0], unknown) {
		t.Fatalf("reported %v, want the first", errs)
	}
	if f.c.again(1) {
		t.Error("the first is gone and is said to be sent again")
	}
	report(f.c.rename(8, unknown, nil))
	if len(errs) != 3 {
		t.Errorf("%d are reported, want all", len(errs))
	}
	f.sent = nil
	f.put(t, 4, 1<<62, nil)
	if b, err := open(f.sent[0]); err != nil || b.author != 8 || b.number != 1 {
		t.Errorf("author %d, number %d, %v: want a new one that begins at 1", b.author, b.number, err)
	}
}

func TestSendFails(t *testing.T) {
	f := newFake()
	f.fail = errors.New("disconnected")
	f.put(t, 1, 1<<62, nil)
	f.fail = nil
	f.c.tick(time.Now(), nil)
	if len(f.sent) != 0 {
		t.Error("sent again at once")
	}
	f.c.tick(time.Now().Add(nackedWaitMx), nil)
	if len(f.sent) != 1 {
		t.Error("not sent again")
	}
}
