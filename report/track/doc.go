// Package track compares a conformance check with a record of what is known about the broker: each fault that is known
// must still be found, and none that is not known may appear. A checker that no longer finds what it found once has lost
// something, and a broker with known faults can still be held to having no new ones.
//
// A record is a file of YAML: for each target string its entries, each a rule, the versions of MQTT, what is expected,
// and why. [Load] reads it strictly; [Record.Compare] is a function of its arguments. Findings of level info are
// observations: they need no entry.
package track
