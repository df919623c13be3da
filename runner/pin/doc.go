// Package pin says which CPUs the load generator and the brokers may run on, and keeps them there.
//
// A plan gives the generator CPUs of its own, and the slots others: with few connections, rates are largely a matter of
// where the scheduler puts the two processes, together or apart, and it puts them elsewhere from run to run. A plan does
// not make a broker faster; it makes a run repeatable, and takes from the broker the CPU that the generator has.
//
// It works on Linux, by sched_setaffinity(2). Elsewhere [Here] says why there is no plan.
package pin
