// Package null is a broker that stores and delivers nothing: it acknowledges everything at once, or a fixed delay later.
// It shows the load generator's own ceiling, and with a delay it is a clock that the generator's latencies are checked
// against.
package null
