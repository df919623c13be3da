// Package ops is what those who run a broker look at: a small HTTP server of its own, away from the MQTT listeners.
//
//	/metrics      counters and gauges in the text format of Prometheus
//	/healthz      200 as long as the process answers
//	/readyz       200 while the broker can serve clients, else 503 and the reason
//	/debug/pprof  Go's profiles, only when asked for
//
// It knows nothing of the broker but a [Snapshot] and a readiness function: what is counted, and where, is the broker's
// business. A scrape takes one snapshot; nothing here runs between scrapes. The registry is the server's own, so that
// several brokers in one process do not meet in it.
//
// The listener carries no authentication. Without a host in its address it is on loopback.
package ops
