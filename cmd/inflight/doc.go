// Inflight measures and judges what an MQTT broker does with a client's in-flight window. This package is the command
// line alone: one file per command, the exit codes, the progress line, and the wiring of the packages that do the work.
// It is imported by none.
//
// Standard output is data, standard error is talk. Every error becomes an exit code in one place, exit.go.
package main
