// Package runner turns a Scenario into a Result: it plans the passes, starts the brokers, measures cell by cell, verifies
// what was delivered, and stops everything again. It is the only place that knows the order of things; how a broker is
// started is package target's, how a connection is loaded is package client's, and what the numbers mean is package
// report/stat's.
//
// # Order
//
// Two arms, A and B, run at the same time in two slots. In pass 1 A is in slot 1 and B in slot 2; in pass 2 they are
// swapped, and so on, so that what belongs to a slot cancels in the ratio of both passes. More arms have as many slots and
// move on by one with each pass: what belongs to a slot cancels over as many passes as there are arms. Each pass starts its
// brokers anew on empty data directories. Only one arm is loaded at any time. Inside a pass:
//
//   - each arm is loaded for a moment, uncounted, so that the first block does not pay for a cold broker;
//   - the blocks of all points are interleaved: block 1 of every point, then block 2 of every point, in the opposite
//     direction, so that a machine that slows down does so for every window;
//   - a block of two arms is A B B A, or its mirror image B A A B for every second point, and the other way round in the
//     next block; of three it is A B C C B A, B C A A C B or C A B B A C: a linear drift cancels inside the block, and what
//     the first position costs falls on all arms;
//   - each position is a control run at QoS 0 and then the measured run, of the same arm on the same broker;
//   - after the last block, so that nothing of it is measured, comes the verification of each arm at each point: a
//     subscriber at the same QoS, on another node than the publishers where there is one, and the ledger.
//
// A measured run lasts as long as the scenario says, or longer, so that it holds whole turns of the window and begins after one: at
// QoS 2 a serialised broker completes exchanges in waves of a whole window, see turns.go.
//
// With a single arm a block is one run (and its control), and no slots are swapped.
//
// # Control
//
// The control run asks whether the arms were measured under like conditions. It takes the connections and the payload
// of its point, but always [ControlWindow], whatever the window of the point, since the pipeline of a broker has no part
// in QoS 0. Its cells carry the window of their point only as a label. Points that differ in QoS alone share their control
// cell; its blocks are numbered through.
//
// # Trouble
//
// A run that is cut off is not counted. Whatever was measured before a broker died, a client run failed or the context
// ended is returned as a partial Result together with the error. Run leaves no process and no data directory behind.
package runner
