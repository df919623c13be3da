// Package load is the load of one publishing connection as pure state: no I/O, no clock, no goroutine.
//
// A [Window] is the loop at QoS 1 and 2: it gives out Packet Identifiers (never one that is in use), keeps the time at
// which each PUBLISH and PUBREL was written, checks the order of acknowledgements per packet type, and integrates the
// number of outstanding exchanges over the measured time. [Fences] is the same for QoS 0, where nothing acknowledges a
// message and a PINGREQ behind a batch stands in for it.
//
// A [Pace] is the schedule of an open loop, and a [Turn] the part of it that one of several connections takes.
//
// Time is a time.Duration since an epoch that the caller chooses, and never goes back.
//
// Writing is in two steps, because one clock reading serves a whole write: Publish and Release hand out what to append
// to the output, Sent stamps all of it just before the write. What has not been Sent is not outstanding yet.
package load
