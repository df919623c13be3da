package load

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestFencesAgainstModel: never more than window messages without an answered fence, every message fenced once and in
// order, and never a state in which nothing can be sent and nothing is awaited.
func TestFencesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 100).Draw(t, "window")
		f, err := NewFences(size)
		if err != nil {
			t.Fatal(err)
		}
		type modelled struct {
			last int64 // messages below it are behind the fence
			sent time.Duration
		}
		var (
			now      time.Duration
			fences   []modelled
			seq      int64
			answered int64
			stamped  int
		)
		f.Measure(0, Forever)
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				last := rapid.Bool().Draw(t, "last")
				for f.Room() > 0 {
					if got := f.Publish(); got != seq {
						t.Fatalf("message %d follows %d", got, seq-1)
					}
					seq++
					if last && rapid.Bool().Draw(t, "stop") {
						break
					}
				}
				if f.Due(last) {
					f.Fence()
					fences = append(fences, modelled{last: seq})
				}
			},
			"sent": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(0, 50).Draw(t, "ns"))
				f.Sent(now)
				for ; stamped < len(fences); stamped++ {
					fences[stamped].sent = now
				}
			},
			"pingresp": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(0, 50).Draw(t, "ns"))
				first, n, leg, err := f.Pingresp(now)
				if (err == nil) != (stamped > 0) {
					t.Fatalf("error %v with %d fences sent", err, stamped)
				}
				if err != nil {
					return
				}
				want := fences[0]
				fences, stamped = fences[1:], stamped-1
				if first != answered || first+int64(n) != want.last || leg != now-want.sent {
					t.Fatalf("messages %d to %d after %v, want %d to %d after %v", first, first+int64(n), leg, answered, want.last, now-want.sent)
				}
				answered = want.last
			},
			"": func(t *rapid.T) {
				if open := seq - answered; open > int64(size) || int(open) != f.Outstanding() {
					t.Fatalf("%d messages without an answered fence, window %d, outstanding %d", open, size, f.Outstanding())
				}
				if f.Room() == 0 && !f.Due(true) && len(fences) == 0 {
					t.Fatal("nothing can be sent and nothing is awaited")
				}
			},
		})
	})
}

func TestFencesMean(t *testing.T) {
	f, err := NewFences(8)
	if err != nil {
		t.Fatal(err)
	}
	f.Measure(10, 30)
	f.Publish()
	f.Fence()
	f.Sent(0)
	f.Publish()
	f.Fence()
	f.Sent(20)
	if _, _, _, err := f.Pingresp(25); err != nil {
		t.Fatal(err)
	}
	// 10 to 20: 1, 20 to 25: 2, 25 to 30: 1.
	if got := f.Mean(40); got != 1.25 {
		t.Fatalf("mean %v, want 1.25", got)
	}
	for _, window := range []int{0, 65_536} {
		if _, err := NewFences(window); err == nil {
			t.Errorf("window %d accepted", window)
		}
	}
}
