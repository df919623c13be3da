package load

import "math"

// Verdict is what one trial of a rate showed.
type Verdict int

// The verdicts of a trial.
const (
	Held   Verdict = iota + 1 // the limit was kept
	Broken                    // it was not
	Unsure                    // it was not, and that may have been the generator's fault
)

// Bounds of a Search.
const (
	searchPrecision = 1.1 // a search ends once the rates on both sides of the limit are so near each other
	searchFall      = 4.0 // from one rate that is too high to the next, while none has held
	searchRise      = 2.0 // from one rate that holds to the next, while none has broken
	searchVotes     = 2   // trials that agree decide a rate
	MaxTrials       = 40  // of a search
)

// SearchEnd says how a search ended.
type SearchEnd string

// The ends of a Search.
const (
	Found        SearchEnd = "found"           // it holds at Low and breaks at High, which are near each other
	LowestBreaks SearchEnd = "lowest_breaks"   // it breaks at the lowest rate that was to be tried; there is no Low
	HighestHolds SearchEnd = "highest_holds"   // it holds at the highest rate that was to be tried; there is no High
	OwnLimit     SearchEnd = "generator_limit" // what broke it above Low may have been the generator; there is no High
	OutOfTrials  SearchEnd = "out_of_trials"   // the limit is between Low and High, which are not near each other yet
)

// Search looks for the highest rate at which a limit holds, messages per second: it brackets it from a first guess, then
// bisects the bracket, on a logarithmic scale. One trial decides nothing, since a pause of the machine breaks any limit: the
// better of three does. The number of trials is bounded.
type Search struct {
	lowest, highest int
	rate            int // of the next trial
	held, broken    int // trials of that rate
	own             bool
	low, high       int  // the highest rate that held and the lowest that broke; 0: none
	ownHigh         bool // the generator may have been at fault there
	trials          int
	end             SearchEnd
}

// NewSearch begins at the rate first, and tries none beyond the bounds; lowest is 1 or more.
func NewSearch(first, lowest, highest int) *Search {
	return &Search{lowest: lowest, highest: highest, rate: min(max(first, lowest), highest)}
}

// Next is the rate of the next trial; ok is false when the search is over.
func (s *Search) Next() (rate int, ok bool) { return s.rate, s.end == "" }

// Note takes what the trial of Next showed.
func (s *Search) Note(v Verdict) {
	s.trials++
	switch v {
	case Held:
		s.held++
	default:
		s.broken++
		s.own = s.own || v == Unsure
	}
	switch {
	case s.held >= searchVotes:
		s.low = max(s.low, s.rate)
		s.move()
	case s.broken >= searchVotes:
		s.high, s.ownHigh = s.rate, s.own
		s.move()
	}
	if s.end == "" && s.trials >= MaxTrials {
		s.end = OutOfTrials
	}
	if s.end != "" && s.high > 0 && s.ownHigh {
		s.high, s.end = 0, OwnLimit
	}
}

// move goes on to the next rate, or ends the search.
func (s *Search) move() {
	decided := s.rate
	switch {
	case s.low == 0 && decided == s.lowest:
		s.end = LowestBreaks
	case s.low == 0:
		s.rate = max(s.lowest, int(float64(decided)/searchFall))
	case s.high == 0 && decided == s.highest:
		s.end = HighestHolds
	case s.high == 0:
		s.rate = min(s.highest, int(math.Ceil(float64(decided)*searchRise)))
	case float64(s.high) <= searchPrecision*float64(s.low) || s.high-s.low <= 1:
		s.end = Found
	default:
		middle := int(math.Round(math.Sqrt(float64(s.low) * float64(s.high))))
		s.rate = min(max(middle, s.low+1), s.high-1)
	}
	s.held, s.broken, s.own = 0, 0, false
}

// Result is the highest rate that held and the lowest that broke, 0 where there is none, and how the search ended, "" while
// it has not.
func (s *Search) Result() (low, high int, end SearchEnd) { return s.low, s.high, s.end }
