package load

import (
	"testing"

	"pgregory.net/rapid"
)

// play runs a search against a broker that keeps the limit up to a rate; luck turns trial number i around.
func play(s *Search, upTo int, luck func(i int) bool) (trials int) {
	for {
		rate, ok := s.Next()
		if !ok {
			return trials
		}
		v := Broken
		if (rate <= upTo) != luck(trials) {
			v = Held
		}
		s.Note(v)
		trials++
	}
}

func fair(int) bool { return false }

func TestSearch(t *testing.T) {
	for _, test := range []struct {
		why          string
		first, upTo  int
		low, high    int
		end          SearchEnd
		mostTrials   int
		lowest, most int
	}{
		{"a good guess", 8_000, 10_000, 0, 0, Found, 12, 10, 1_000_000},
		{"a guess far too high", 800_000, 100, 0, 0, Found, 30, 10, 1_000_000},
		{"a guess far too low", 10, 500_000, 0, 0, Found, 40, 10, 1_000_000},
		{"nothing keeps the limit", 8_000, 0, 0, 10, LowestBreaks, 14, 10, 1_000_000},
		{"nothing breaks it", 8_000, 2_000_000, 1_000_000, 0, HighestHolds, 20, 10, 1_000_000},
		{"a guess outside the bounds", 3, 500, 0, 0, Found, 20, 10, 1_000},
		{"rates that are neighbours", 2, 3, 3, 4, Found, 20, 1, 100},
	} {
		s := NewSearch(test.first, test.lowest, test.most)
		trials := play(s, test.upTo, fair)
		low, high, end := s.Result()
		if end != test.end || trials > test.mostTrials || (test.end != Found || test.low > 0) && (low != test.low || high != test.high) {
			t.Errorf("%s: %d to %d, %s after %d trials; want %d to %d, %s", test.why, low, high, end, trials, test.low, test.high, test.end)
		}
		if test.end == Found && (low > test.upTo || high <= test.upTo) {
			t.Errorf("%s: %d to %d, and the limit is at %d", test.why, low, high, test.upTo)
		}
	}
}

func TestOneUnluckyTrialDecidesNothing(t *testing.T) {
	s := NewSearch(5_000, 10, 1_000_000)
	play(s, 10_000, func(i int) bool { return i%3 == 0 })
	if low, high, end := s.Result(); end != Found || low > 10_000 || high <= 10_000 {
		t.Errorf("%d to %d, %s: one of three trials was wrong each time", low, high, end)
	}
}

func TestSearchEndsAtTheGenerator(t *testing.T) {
	for _, test := range []struct{ first, upTo, least int }{{1_000, 10_000, 9_000}, {900_000, 10_000, 9_000}, {1_000, 0, 0}} {
		s := NewSearch(test.first, 10, 1_000_000)
		for rate, ok := s.Next(); ok; rate, ok = s.Next() {
			v := Held
			if rate > test.upTo {
				v = Unsure
			}
			s.Note(v)
		}
		if low, high, end := s.Result(); low < test.least || low > test.upTo || high != 0 || end != OwnLimit {
			t.Errorf("from %d: %d to %d, %s; want at least %d and no end of the broker", test.first, low, high, end, test.least)
		}
	}
}

// Whatever the trials show, a search ends within its bounds.
func TestSearchEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lowest := rapid.IntRange(1, 1000).Draw(t, "lowest")
		highest := lowest + rapid.IntRange(0, 100_000).Draw(t, "more")
		s := NewSearch(rapid.IntRange(0, 200_000).Draw(t, "first"), lowest, highest)
		trials := 0
		for rate, ok := s.Next(); ok; rate, ok = s.Next() {
			if trials++; trials > MaxTrials || rate < lowest || rate > highest {
				t.Fatalf("trial %d at %d/s, outside %d to %d", trials, rate, lowest, highest)
			}
			s.Note(rapid.SampledFrom([]Verdict{Held, Broken, Held, Broken, Held, Broken, Unsure}).Draw(t, "verdict"))
		}
		if low, high, end := s.Result(); end == "" || high > 0 && low >= high {
			t.Fatalf("%d to %d, %q", low, high, end)
		}
	})
}
