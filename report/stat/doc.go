// Package stat turns the cells of a run into comparisons with intervals, a control, verdicts and warnings. It is pure:
// it reads a result.Result and fills its derived fields, and does nothing else.
//
// # The design of the experiment
//
// Two arms, A and B, run in two slots. In pass 1 A has slot 1 and B slot 2, in pass 2 they are swapped. Inside a pass
// the arms alternate in blocks A B B A, so that a drift which is linear over a block weighs on both alike. With more arms
// the slots are rotated and a block is A B C C B A; each is compared with the first.
//
// # From blocks to a ratio
//
// Blocks are the unit; messages are not independent of each other. One block gives d = log r, where r is the geometric
// mean of its two B runs over that of its two A runs. A pass has the ratio exp(mean d). Pooled over the passes, the
// ratio is their geometric mean, sqrt(r1*r2) for two: a slot that is faster by a factor s turns r1 into r*s and r2 into
// r/s, and s cancels. It is reported as the slot effect, s = sqrt(r1/r2) for two passes and the same contrast of means
// for more; above 1 the slot that B has in pass 1 is the faster one.
//
// The 95 % interval is Student's t on the log ratios, stratified by pass: the variance is that of the blocks around the
// mean of their own pass, with blocks - passes degrees of freedom, so a slot effect does not widen it. With fewer than
// two degrees of freedom there is no interval: the factor would be 12.7 standard errors, estimated from one difference.
//
// The same is done for the p99 of the acknowledgement time, from the p99 of each run; lower is better there. A run with
// too few samples has no p99. When that leaves no interval to be had from the blocks, the ratio comes from the p99 of
// the whole cells, without an interval.
//
// Over all points together the ratio is the mean of the points' logs, each with the same weight, and its error follows
// from theirs; they need not be alike, so the degrees of freedom are Satterthwaite's. It is the most powerful question that
// a run can answer: a slow-down by a tenth that no point shows alone is plain over four of them.
//
// golang.org/x/perf/benchmath compares two independent samples, by a rank test or with the normal assumption. Blocks are
// pairs, measured within a second or two, and the pairing is what makes small effects visible on a machine whose speed
// wanders: so it is not used for verdicts. The interchange format for benchstat is in package report.
//
// # Control
//
// The control is the QoS 0 ratio, pooled over all of the run's control blocks in the same way. A comparison of
// throughputs is given raw, and corrected: divided by the control's ratio, with the errors of both. The correction is by the
// pooled control and not by each block's own, since what the control can find is a difference that lasts (a slot, a
// machine that was not alike); that of a single block is mostly noise, as large as that of the block itself (a standard
// deviation of 0.087 between adjacent runs of 1 s, against 0.085 to 0.123), and A B B A has taken out the drift already.
//
// Between two builds or settings of one broker (their targets agree before "@" and "?") the control must sit at 1.00. Where
// it surely does not, an effect is only called if the corrected interval excludes 1 as well. A control at 1.00 is no
// margin, however noisy: the blocks of the measured path have shown their own noise. Two different brokers do not share
// a QoS 0 path, so their control is reported and the verdict goes by the blocks alone.
//
// # Many comparisons
//
// Intervals are 95 % each. Verdicts are corrected for how many comparisons a run makes: with Holm's procedure a run of a
// broker with itself says better or worse, anywhere, with a probability of 5 % at most. Half of that belongs to the ratio
// over all points, two fifths to the throughputs, a tenth to the p99s. The price is that an interval may exclude 1 and the
// verdict still be inconclusive. Simulations with the noise of a quiet machine are in the tests: false findings, the power
// for a slow-down by 10 % and 40 %, and what a run calls the smallest effect, the ratio that it would have found in four
// runs of five at the level of Holm's first step.
//
// The number of blocks is fixed before the run. There is no option to go on until the interval is narrow enough: looking
// again and again makes chance findings certain.
//
// # Verdicts
//
//   - incorrect: a cell of the comparison broke its contract; the number is not worth comparing.
//   - same: the whole interval lies within 5 %. This comes before better and worse: a sure difference of 2 % is still
//     called the same.
//   - better, worse: the corrected p is at most 0.05; the passes do not contradict each other (one faster, one slower, by
//     more than chance); nor does the control, see above.
//   - inconclusive: anything else, and every comparison without an interval.
package stat
