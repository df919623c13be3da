// Package machine looks at the machine that measures: what tells it from others, how fine its clock is, how long a byte
// takes over loopback, and whether anything there would spoil a measurement. It also stores a calibration, which is filed under
// the machine and quoted by later runs.
//
// It changes nothing: what it finds is for people to mend.
package machine
