// Package rule is the grammar of gate rules: what a scenario's gate section, a --rule flag and a stored result have in
// common. It parses and prints rules and knows nothing of results; package report/gate judges by them.
//
// A rule is one line:
//
//	METRIC [>= LIMIT | <= LIMIT] [at KEY=N,... ...] [effect N%]
//
//	throughput >= 1x effect 20%            # of the base arm, or of the baseline
//	throughput >= 5000/s at qos=2 window=256
//	ack-service.p99 <= 1.5x at qos=1,2 window=20
//	end-to-end.p99.5 <= 20ms
//	rss <= 200MiB
//	cpu <= 1.2x                            # broker CPU time per message
//	exactly-once
//	ordering at qos=2
//	conformance must                       # of a check.json
//
// A limit with an x is a ratio, arm over base; any other one is absolute and has the metric's unit. Effect is how far
// beyond the limit a value must be to matter. The keys of at are qos, window, connections, payload and rate (max is a closed
// loop); without one the rule is for every value of it.
//
// A latency has a max, a mean, and every percentile: p and two digits, with decimals behind them if need be, with a point or
// without one, so that p999 is the 99.9th and p9999 the 99.99th.
package rule
