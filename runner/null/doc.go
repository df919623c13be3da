// Package null is a broker of MQTT 3.1.1 and 5.0 that stores and delivers nothing: it acknowledges everything at once, or
// a fixed delay later. It shows the load generator's own ceiling, and with a delay it is a clock that the generator's
// latencies are checked against. With a stall it stops for a moment now and then, which a load that waits for answers
// hardly notices and one that keeps to its schedule must show.
package null
