package stat

import (
	"fmt"
	"maps"
	"math"
	"strings"

	"inflight/runner/result"
)

// Codes of the warnings that Judge gives. They are stable: a gate may test for them.
const (
	CodePartial      = "partial"           // the run did not end
	CodeOrder        = "order_violated"    // acknowledgements out of order
	CodeLedger       = "ledger_violated"   // messages lost, duplicated, reordered or corrupt
	CodeUnverified   = "unverified"        // no verification block of an arm
	CodeNoControl    = "no_control"        // two arms and no noise floor
	CodeControlOff   = "control_off"       // the control is not at 1.00, between two builds of one broker
	CodeControlApart = "control_apart"     // the same between two brokers, where it may be
	CodeWindowUnused = "window_not_filled" // the generator did not keep the window full
	CodeSearch       = "search_open"       // a search for the highest rate that did not find both sides of it
	CodeRate         = "rate_not_reached"  // an open loop that did not get what it asked for
	CodeSerialised   = "serialised"        // throughput does not rise with the window

	CodePlacement = "placement_unlike"  // other nodes led the streams of one arm than of the other, or in another pass
	CodeClients   = "clients_differ"    // the arms are loaded through different clients
	CodeGenerator = "generator_limited" // the rate may be the load generator's
	CodeLate      = "generator_late"    // the latencies hold the load generator's own waiting

	CodeFewBlocks      = "few_blocks"        // no interval
	CodePassesDisagree = "passes_disagree"   // by more than chance
	CodeNotSwapped     = "slots_not_swapped" // the slot effect is in the ratio
	CodeBlocksLeftOut  = "blocks_left_out"   // incomplete, or a run without a value
	CodeFromTotals     = "from_totals"       // the ratio is that of the cells, not of the blocks
	CodeTrend          = "trend"             // the ratio rises or falls inside the passes, by more than chance
)

// foreign returns the warnings that someone else gave.
func foreign(warnings []result.Warning) []result.Warning {
	var kept []result.Warning
	for _, w := range warnings {
		switch w.Code {
		case CodePartial, CodeOrder, CodeLedger, CodeUnverified, CodeNoControl, CodeControlOff, CodeControlApart,
			CodeWindowUnused, CodeRate, CodeSearch, CodeSerialised, CodePlacement, CodeGenerator, CodeLate, CodeClients:
		default:
			kept = append(kept, w)
		}
	}
	return kept
}

// Limits of the warnings, beside what chance explains.
const (
	controlLow, controlHigh = 0.9, 1.1
	controlNear             = 0.02 // an interval that excludes 1 by less is luck or harmless
	passesNear              = 0.05
	passesErrors            = 3    // standard errors
	passesConfidence        = 0.99 // when few degrees of freedom make that many standard errors likely
	windowFilled            = 0.8
)

func warningsOf(r *result.Result) []result.Warning {
	var out []result.Warning
	warn := func(code, format string, args ...any) {
		out = append(out, result.Warning{Code: code, Text: fmt.Sprintf(format, args...)})
	}
	if r.Partial {
		trouble := r.Trouble
		if trouble == "" {
			trouble = "the run did not end"
		}
		warn(CodePartial, "partial result: %s", trouble)
	}
	for _, arm := range r.Arms {
		correctness(r, arm.Name, warn)
	}
	clients(r, warn)
	controls(r, warn)
	windows(r, warn)
	rates(r, warn)
	openSearches(r, warn)
	serialised(r, warn)
	placements(r, warn)
	innocence(r, warn)
	return out
}

// correctness says for one arm what broke, and where first.
func correctness(r *result.Result, arm string, warn func(code, format string, args ...any)) {
	var order int64
	var account Account
	var firstOrder, firstLedger string
	cells, verified, broken := 0, false, false
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Arm != arm {
			continue
		}
		if c.Order.Violations > 0 && order == 0 {
			firstOrder = where(c, c.Order.First)
		}
		order += c.Order.Violations
		if c.Control {
			continue
		}
		cells++
		if c.Ledger == nil {
			continue
		}
		verified = true
		if c.Ledger.Violated(c.QoS) {
			if !broken {
				firstLedger = where(c, c.Ledger.First)
			}
			broken = true
			account.Add(c.Ledger)
		}
	}
	if order > 0 {
		warn(CodeOrder, "%s: %s out of order; first at %s", arm, count(order, "acknowledgement"), firstOrder)
	}
	if broken {
		warn(CodeLedger, "%s: %d lost, %d duplicated, %d reordered, %d corrupt; first at %s",
			arm, account.Lost, account.Duplicated, account.Reordered, account.Corrupt, firstLedger)
	}
	if cells > 0 && !verified {
		warn(CodeUnverified, "%s: no verification block: loss and duplication were not checked", arm)
	}
}

func where(c *result.Cell, first string) string {
	at := fmt.Sprintf("QoS %d, window %d, pass %d", c.QoS, c.Window, c.Pass)
	if first != "" {
		at += ": " + first
	}
	return at
}

// UnlikeClients reports whether two arms are loaded through different clients.
func UnlikeClients(a, b *result.Arm) bool { return a.Client != b.Client }

// ClientName is the client of an arm, for people.
func ClientName(a *result.Arm) string {
	if a.Client == "" {
		return "wire"
	}
	return a.Client
}

// clients says when a ratio is not one of brokers.
func clients(r *result.Result, warn func(code, format string, args ...any)) {
	var each []string
	unlike, brokers := false, false
	for i := range r.Arms {
		each = append(each, r.Arms[i].Name+" "+ClientName(&r.Arms[i]))
		unlike = unlike || UnlikeClients(&r.Arms[0], &r.Arms[i])
		brokers = brokers || r.Arms[0].Target != r.Arms[i].Target
	}
	if !unlike {
		return
	}
	what := "their ratios compare clients, not brokers"
	if brokers {
		what = "a ratio between two clients is not one of the brokers alone"
	}
	warn(CodeClients, "the arms are loaded through different clients (%s): %s", strings.Join(each, ", "), what)
}

// controls looks at the control of each arm that is compared.
func controls(r *result.Result, warn func(code, format string, args ...any)) {
	if len(r.Arms) < 2 || r.SideBySide {
		return
	}
	all := r.Controls
	if all == nil && r.Control != nil {
		all = []result.Control{*r.Control}
	}
	if len(all) == 0 {
		warn(CodeNoControl, "no QoS 0 control: the noise floor is not known, and a difference between the slots may look like one between the arms")
		return
	}
	targets := map[string]string{}
	for _, a := range r.Arms {
		targets[a.Name] = a.Target
	}
	for i := range all {
		c := &all[i]
		whose := "the QoS 0 control"
		if len(all) > 1 {
			whose = fmt.Sprintf("the QoS 0 control %s/%s", c.Arm, c.Base)
		}
		switch {
		case !controlOff(c):
		case SameKind(targets[c.Base], targets[c.Arm]):
			warn(CodeControlOff, "%s is at %.2f, not at 1.00: something beside the path under test differs between the arms, and only effects beyond it are called", whose, c.Ratio)
		default:
			warn(CodeControlApart, "%s is at %.2f: two different brokers do not share a QoS 0 path, and the verdicts go by the blocks' own spread", whose, c.Ratio)
		}
	}
}

// windows finds arms whose window the generator did not keep full: their rate is not that of the window.
func windows(r *result.Result, warn func(code, format string, args ...any)) {
	for _, arm := range r.Arms {
		var low []string
		for _, p := range Points(r) {
			s := Summarise(r, arm.Name, p)
			if s == nil || p.QoS == 0 || p.Rate > 0 || s.InFlight == 0 || s.InFlight >= windowFilled*float64(p.Window) {
				continue
			}
			low = append(low, fmt.Sprintf("%.3g of %d", s.InFlight, p.Window))
		}
		if len(low) > 0 {
			warn(CodeWindowUnused, "%s: the window was not kept full (%s): the rate may be the generator's, not the broker's", arm.Name, strings.Join(low, ", "))
		}
	}
}

// rates finds open loops that fell behind what was asked for.
func rates(r *result.Result, warn func(code, format string, args ...any)) {
	for _, arm := range r.Arms {
		var behind []string
		for _, p := range Points(r) {
			s := Summarise(r, arm.Name, p)
			if p.Rate == 0 || s == nil || s.Throughput == nil || s.Throughput.Value >= keptUp*float64(p.Rate) {
				continue
			}
			used := ResourcesOf(r, arm.Name, p)
			text := fmt.Sprintf("%.0f of %d/s at QoS %d, %d written late, %d not at all", s.Throughput.Value, p.Rate, p.QoS, used.Late, used.Missed)
			if rate, ok := fellBehind(r, arm.Name, p); ok {
				text += fmt.Sprintf("; on its way %s/s it fell behind at about %.0f/s", p.Ramp, rate)
			}
			behind = append(behind, text)
		}
		if len(behind) > 0 {
			warn(CodeRate, "%s: the rate that was asked for was not reached (%s)", arm.Name, strings.Join(behind, "; "))
		}
	}
}

// reservations are the warnings that belong to one comparison.
func (e estimate) reservations(blocks int, totals bool, pairs []pair) []result.Warning {
	var out []result.Warning
	warn := func(code, format string, args ...any) {
		out = append(out, result.Warning{Code: code, Text: fmt.Sprintf(format, args...)})
	}
	switch {
	case totals:
		warn(CodeFromTotals, "taken from the totals of each pass, without an interval: the blocks have too few samples")
	case e.df < minDF:
		warn(CodeFewBlocks, "no interval: %s in %s, at least %d more blocks than passes are needed",
			count(int64(e.n), "block"), count(int64(len(e.passes)), "pass"), minDF)
	}
	if left := blocks - e.n; left > 0 && !totals {
		warn(CodeBlocksLeftOut, "%d of %d blocks left out: cut off, or a run in them has no value", left, blocks)
	}
	switch balanced, shared := e.slotsOf(pairs); {
	case balanced:
	case !shared:
		warn(CodeNotSwapped, "the slots were not swapped: a difference between them is part of the ratio")
	default:
		warn(CodeNotSwapped, "%s: a difference between the slots does not cancel wholly", count(int64(len(e.passes)), "pass"))
	}
	if lowest, highest, ok := e.disagreement(); ok {
		warn(CodePassesDisagree, "the passes disagree, %.3g and %.3g: the slots differ, or something changed between the passes",
			math.Exp(lowest), math.Exp(highest))
	}
	return out
}

// disagreement returns the extreme passes when they are further apart than chance and 5 %.
func (e estimate) disagreement() (lowest, highest float64, ok bool) {
	if len(e.passes) < 2 || e.df < 1 {
		return 0, 0, false
	}
	lo, hi := e.passes[0], e.passes[0]
	for _, p := range e.passes {
		if p.mean < lo.mean {
			lo = p
		}
		if p.mean > hi.mean {
			hi = p
		}
	}
	apart := hi.mean - lo.mean
	chance := passesFactor(float64(e.df)) * e.sd * math.Sqrt(1/float64(lo.n)+1/float64(hi.n))
	return lo.mean, hi.mean, apart > chance && apart > math.Log1p(passesNear)
}

// passesFactor is how many standard errors of their difference two passes may be apart by chance.
func passesFactor(df float64) float64 { return max(passesErrors, tQuantile(df, passesConfidence)) }

// slotsOf reports whether both arms were in each slot equally often, so that a difference between the slots cancels, and
// whether they shared any.
func (e estimate) slotsOf(pairs []pair) (balanced, shared bool) {
	a, b := map[int]int{}, map[int]int{}
	for _, p := range e.passes {
		for _, q := range pairs {
			if q.pass == p.pass {
				a[q.a.Slot]++
				b[q.b.Slot]++
				break
			}
		}
	}
	for slot := range a {
		shared = shared || b[slot] > 0
	}
	return maps.Equal(a, b), shared
}

func count(n int64, noun string) string {
	switch {
	case n == 1:
		return fmt.Sprintf("1 %s", noun)
	case strings.HasSuffix(noun, "s"):
		return fmt.Sprintf("%d %ses", n, noun)
	default:
		return fmt.Sprintf("%d %ss", n, noun)
	}
}
