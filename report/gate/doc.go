// Package gate judges a result by rules, for a machine that has to say yes or no. It does no I/O: it is given the result,
// the baseline and the conformance check, and returns a [Report]. Rules are written as package scenarios/rule says.
//
// # What a ratio is taken from
//
// Inside a run it is arm over base, the run's first arm, as report/stat compares them. With a baseline it is the new
// result over the stored one, arm by arm of the same name (or the only one), with Welch's interval over both runs'
// blocks. Two machines that differ in processor, cores, GOMAXPROCS or system have no rate in common: between them only
// throughputs that each run has divided by its own QoS 0 control are compared, and every other ratio is inconclusive.
//
// Throughput and the p99 of the acknowledgement time have an interval over blocks. What a result keeps for whole cells
// only (other percentiles, RSS, CPU) has the range of its passes in its place: the passes have to agree. Percentiles that
// are not in result.json come from the histograms beside it; where too few samples lie beyond one, the place is inconclusive.
//
// # Verdicts
//
// On a logarithmic axis that points towards better, with the limit at 0, the interval [low, high] and the rule's effect:
//
//   - pass: low is no further below the limit than the effect: whatever is left of a regression does not matter.
//   - fail: high is below the limit by more than the control's spread, and the estimate by at least the effect. Two different
//     brokers share no QoS 0 path: between them the control is no margin, as in report/stat. With the limit 1x the Holm-corrected p value has to agree where the result has one, because a rule may look at many places.
//   - inconclusive: anything else, and whatever has no interval.
//
// A rule about throughput that names no place is judged by the ratio over all points together as well.
//
// A rule has the worst verdict of its places. A number of an incorrect cell is never compared: that fails, and is a matter
// of conformance. Exactly once and order are judged whether a rule asks or not. A rule that matches nothing is an error.
//
// [Defaults] judge where there are no rules.
package gate
