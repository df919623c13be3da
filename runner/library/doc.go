// Package library carries the load of an arm through the client libraries that applications use, instead of the wire client:
// paho.golang (5.0), paho.mqtt.golang (3.1.1) and MQTT.js (either, in a process of Node.js). It takes the plan of package
// client and returns its Stats, so that the same window, schedule and ledger go through another client.
//
// # The window
//
// Each connection has Window publishes outstanding, the way an application of that library has them: paho.golang's Publish
// waits for the acknowledgement, so Window goroutines publish in turns, and its own flow control (Receive Maximum) stays on;
// paho.mqtt.golang's returns a token, so one goroutine publishes and another waits for the tokens in their order; MQTT.js
// calls back. A place is free when the library says that the exchange is over. Everything else is as the library has it.
//
// # What a library does not tell
//
// Only the acknowledgement time is measured, from just before the call that publishes until the library says that the
// exchange is over. The legs of QoS 2, the order of acknowledgements and QoS 0, where nothing is acknowledged, are not
// visible through any of them: those histograms are nil, no order is checked, and QoS 0 is refused. Publishes of several
// goroutines have no order among them, see [Client.Unordered]. MQTT.js has a clock of its own: what it publishes carries no
// time, and end-to-end latencies are not measured.
//
// # MQTT.js
//
// mqttjs/ has its lock file and the driver, both part of the program. The first use installs it into the user's cache with
// npm; a process of node is started with the first load of an arm and serves all of them, so that its compiler is warm. It
// is told what to do in lines of JSON on its standard input and answers in lines on its standard output, and ends when its
// standard input does, however this process ended.
package library
