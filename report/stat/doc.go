// Package stat turns the cells of a run into comparisons with intervals, a control, verdicts and warnings. It is pure:
// it reads a result.Result and fills its derived fields, and does nothing else.
//
// # The design of the experiment
//
// Two arms, A and B, run in two slots. In pass 1 A has slot 1 and B slot 2, in pass 2 they are swapped. Inside a pass
// the arms alternate in blocks A B B A, so that a drift which is linear over a block weighs on both alike.
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
// The control is the QoS 0 ratio, pooled over all of the run's control blocks in the same way. Its spread is how far
// from 1.00 its interval reaches; no difference below that is told apart from noise.
//
// # Verdicts
//
//   - incorrect: a cell of the comparison broke its contract; the number is not worth comparing.
//   - same: the whole interval lies within the margin, which is 5 % or the control's spread, whichever is larger. This
//     comes before better and worse: a sure difference of 2 % is still called the same.
//   - better, worse: the interval excludes 1 by more than the control's spread.
//   - inconclusive: anything else, and every comparison without an interval.
//
// Intervals are 95 % each; nothing is corrected for how many of them a table shows.
package stat
