package stat

import (
	"math"

	"inflight/runner/result"
)

// Summary is one arm at one point, pooled over the passes: what a table shows and a chart draws. Values that were not
// measured are nil. A value of several passes is their geometric mean, so that B over A is the ratio of the totals.
type Summary struct {
	Arm   string
	Point Point

	Throughput *Measure // messages per second
	P99        *Measure // nanoseconds, of the acknowledgement time
	P50        *float64 // nanoseconds

	InFlight  float64  // achieved, mean over the passes; 0 if not measured
	RSSPeak   *int64   // bytes, highest of any node
	Messages  int64    // acknowledged within the measured time of all passes
	Order     int64    // acknowledgements out of order
	Ledger    *Account // summed; nil without a verification block
	Incorrect bool
	Class     string // what bounded the rate, if it was the same in each pass; else ""
}

// Measure is a value with the 95 % interval of the arm's own blocks, which says how steady the arm was. The interval of
// a ratio is narrower than two of these suggest, because the arms alternate.
type Measure struct {
	Value     float64
	Low, High *float64
}

// Account is the sum of the ledgers of some cells.
type Account struct {
	Published, Acknowledged, Delivered, Lost, Duplicated, Reordered, Corrupt int64
}

// Add adds one ledger.
func (a *Account) Add(l *result.Ledger) {
	a.Published += l.Published
	a.Acknowledged += l.Acknowledged
	a.Delivered += l.Delivered
	a.Lost += l.Lost
	a.Duplicated += l.Duplicated
	a.Reordered += l.Reordered
	a.Corrupt += l.Corrupt
}

// Summarise returns arm at point, or nil when it has no cells there.
func Summarise(r *result.Result, arm string, point Point) *Summary {
	var cells []*result.Cell
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Arm == arm && !c.Control && PointOf(c) == point {
			cells = append(cells, c)
		}
	}
	if len(cells) == 0 {
		return nil
	}
	s := &Summary{Arm: arm, Point: point}
	all := metrics()
	runs := runsPerBlock(r, cells)
	s.Throughput, s.P99 = all[0].measure(cells, runs), all[1].measure(cells, runs)
	s.P50 = geometricMean(cells, func(c *result.Cell) float64 {
		if c.Latency.AckService == nil {
			return 0
		}
		return nanoseconds(c.Latency.AckService.P50)
	})
	s.Class = cells[0].Class
	for _, c := range cells {
		if c.Class != s.Class {
			s.Class = ""
		}
		s.InFlight += c.InFlight.AchievedMean / float64(len(cells))
		s.Messages += c.Messages
		s.Order += c.Order.Violations
		s.Incorrect = s.Incorrect || c.Incorrect()
		if c.RSSPeak != nil && (s.RSSPeak == nil || *c.RSSPeak > *s.RSSPeak) {
			s.RSSPeak = c.RSSPeak
		}
		if c.Ledger != nil {
			if s.Ledger == nil {
				s.Ledger = new(Account)
			}
			s.Ledger.Add(c.Ledger)
		}
	}
	return s
}

// runsPerBlock is how often the arm of some cells ran in each of its blocks.
func runsPerBlock(r *result.Result, cells []*result.Cell) int {
	if len(r.Arms) == 1 || r.SideBySide && !paired(cells) {
		return 1 // a block of a sweep is a single run
	}
	return pairedRuns
}

// paired reports whether the blocks of cells have more than a single run of their arm.
func paired(cells []*result.Cell) bool {
	for _, c := range cells {
		for i := 1; i < len(c.Blocks); i++ {
			if c.Blocks[i].Block == c.Blocks[i-1].Block {
				return true
			}
		}
	}
	return false
}

// measure takes the value from the totals of the cells and only the width of its interval from the blocks.
func (m metric) measure(cells []*result.Cell, runsPerBlock int) *Measure {
	value := geometricMean(cells, m.ofCell)
	if value == nil {
		return nil
	}
	var samples []sample
	for _, c := range cells {
		logs, _ := m.logsOf(c, runsPerBlock)
		for i := range c.Blocks {
			if v, ok := logs[c.Blocks[i].Block]; ok {
				samples = append(samples, sample{pass: c.Pass, value: v})
				delete(logs, c.Blocks[i].Block)
			}
		}
	}
	out := &Measure{Value: *value}
	if e := estimateOf(samples); e.df >= minDF {
		factor := math.Exp(tQuantile(float64(e.df), confidence) * e.se())
		low, high := usable(*value/factor), usable(*value*factor)
		if low != nil && high != nil {
			out.Low, out.High = low, high
		}
	}
	return out
}

// geometricMean leaves out the cells that do not have the value; nil when none has.
func geometricMean(cells []*result.Cell, of func(*result.Cell) float64) *float64 {
	var logs []float64
	for _, c := range cells {
		if v := of(c); positive(v) {
			logs = append(logs, math.Log(v))
		}
	}
	if len(logs) == 0 {
		return nil
	}
	return usable(math.Exp(mean(logs)))
}
