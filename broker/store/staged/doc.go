// Package staged is the published design of a pipelined MQTT broker on JetStream: a QoS 2 message is staged in one stream
// from PUBLISH to PUBREL, then published to the delivery stream, then its staged copy is discarded.
//
// # Streams
//
//	INF_staged    inf.h.<client>.<packet identifier>.<store>
//	                                                   held QoS 2 messages, until they are discarded
//	INF_msgs      inf.m.<origin>.<topic as a subject>  deliveries, kept as long as a subscription wants them
//	INF_sessions  inf.s.<client>                       one record for each session, last value; an empty one says that
//	                                                   there is none, and goes by itself
//	              inf.o.<client>                       what a kept session has sent and not seen acknowledged, likewise
//	              inf.k.<client>                       which store holds for the client since it was resumed, see holder
//	              inf.n.<origin>                       the name of each node that was ever there
//	              inf.i                                whether anyone subscribes
//	INF_retained  inf.r.<topic as a subject>           retained messages, last value; an empty one says that there is none
//
// <client> is a hash of the Client Identifier; <origin> is a hash of the name of the node that released the message, or _
// for what was not staged; package topic maps topics to subjects. QoS 0 publications take no stream:
// inf.q.<topic as a subject> on plain NATS. The metadata of each stream says which version of this layout it has; streams
// of another one are refused.
//
// # Exactly once
//
// A release is a publish to INF_msgs whose message id names the staged copy (stream creation time and sequence). The
// stream drops a second one with the same id inside its duplicate window, whichever node sends it, and subscribers of
// every QoS read from that stream only. So nobody sees the message before the release is durable, and a PUBREL that is
// retried on another node cannot deliver twice within the window ([DuplicateWindow]).
//
// That alone would not do. INF_msgs drops what every subscription has acknowledged, and with the message, over a restart,
// its id: a copy that is not discarded by then would look pending, and be released once more. So each node has a guard, a
// consumer of INF_msgs that nobody reads, which covers what this node has released. The stream keeps what is above the
// guard's floor, and the node moves the floor only to where every copy is discarded (see guard; one call of
// CONSUMER.RESET for many releases, nothing for a single one). Hence at any time, of a released message, either
//
//   - the staged copy is gone, for good, and nothing is left that could be released again, or
//   - the delivery is above the floor of the guard of the node that released it, and names the copy.
//
// Who finds it: a node that starts discards what the deliveries above the floor of every guard name before it serves
// anyone, however long it was down. A node that runs looks at what other guards have above their floor every
// DuplicateWindow/4 and discards what is older than a moment, so that a node which is gone for ever is not missed. And
// [Store.Held], the only place where it matters, asks the stream whether it knows an id only if such a look is recent;
// else, after the cluster was without a majority for minutes, it looks first. So it never depends on an id that the
// stream has forgotten.
//
// A release whose answer was lost may be in the stream and may not: the floor waits before it, a second later a message
// that nobody subscribes to marks the place behind which it cannot come any more, and what is up to there is looked at
// in the same way.
//
// When the floor moves, the stream lets go of what is below it message by message, each by a vote of its members, on top of
// the vote that stored it. Where nobody subscribes it is purged instead, all of it by one vote. The guard is needed there as
// well: a copy that seems pending would swallow the next publication on its Packet Identifier. Invariant: up to a floor
// that was known before the record inf.i was read as unwanted, no subscriber is owed anything. For
//
//   - who subscribes makes the consumer first, then sees to it that the record says wanted, then is told (see declare). So
//     what it is owed is above that floor; or the record was wanted before, and is not any more;
//   - it becomes unwanted by two writes, both on condition that nobody has written in between, with a look at the list of
//     consumers between them (see leave). A consumer whose owner read wanted before the first write is in that list: the
//     list is taken from the member that leads, and only once it shows a consumer that was made after the first write. An
//     owner that reads later writes, and then either the second write fails, or the client is told after it;
//   - a power cut may lose the record and leave consumers of kept sessions. So a node looks before it serves.
//
// A hold that its node gave up, or died with, can become durable when its client has gone on elsewhere. It does not count
// then: see holder.
//
// What remains: a node that stands still for longer than DuplicateWindow and then goes on can release, or hand out to a
// member of a group, what it was about to when it stopped, though the stream has forgotten that id since; a power cut on
// a node that does not sync each write (durability file) can lose what JetStream had not synced, as everywhere; where the lead
// of a subscription's consumer, in the moment after it was made, goes to a node that has not made it yet, that node has not
// kept what came meanwhile; and the clocks of the nodes must agree to less than DuplicateWindow/3.
//
// # Subscriptions
//
// A subscription above QoS 0 is a push consumer. Its feed hands over what the consumer has in order and leaves nothing out,
// so that one number, the sequence of the last message that was sent, says for ever what of a subscription a session has
// had: see package session, Source. JetStream alone does not promise that. A delivery is lost with a connection between two
// nodes, and with the consumer's leader, which has noted it and not sent it; and that a consumer is sending again what was
// not settled is known to its leader only. So the feed compares the consumer's numbers, and how many messages are to come
// again, and has the consumer begin anew when something is missing (see turn). What is missing else comes after ackWait,
// behind what was sent after it; a session that is found on another node meanwhile would send that once more.
//
// What a session has sent and not seen acknowledged is one record, which replaces the one that its node read or wrote last
// and no other: see outbounds.
//
// # Retained messages
//
// The retained message of a topic is the one whose delivery has the highest sequence in INF_msgs, whichever node wrote it:
// what subscribers saw last. It is written after the delivery, names its sequence, and replaces another one on condition
// that it is still the one that was looked at; see retaining. The operation is done when both are durable, and a staged
// copy is discarded only then: who finds a released copy after a crash, writes what was not written. A subscriber that
// comes too late for the delivery must find it retained, so before it reads, every node has written what it was asked for
// ([Store.RetainedEnd]). A message that has expired is not sent; the stream removes it, and the note that a topic has
// none, a while later.
//
// # Shared subscriptions
//
// A group, a ShareName with a Topic Filter, has a pull consumer of the delivery stream, and each member a push consumer of
// what is handed out to it:
//
//	inf.m._.i.<group>.<sequence>.<member>   a message, by its sequence in the stream, handed out to a member
//	inf.m._.j.<group>                       one that comes back from a member that is gone
//
// Every connected member keeps requests open, for as much as it has room for. JetStream serves open requests in turn, so
// over all nodes each member that keeps up gets its share, give or take a request (pullBatch). What comes to a node it hands
// out to its members strictly in turn, in the order of the stream; one that has memberCredit messages waiting is passed
// over. No node leads: when one dies, what it had pulled and not handed out is pulled by another after shareAckWait.
//
// Handing out is a publication under an id that is made of group and sequence, whoever the member is; then the group's
// consumer is told. Who dies in between leaves both, and whoever pulls the message again sees it: the stream is asked for
// the subject above, and drops the id. That is why what a member has settled stays in the stream until the group's consumer
// has moved past it for good, see settling: a message is never in neither place.
//
// QoS 0 publications go to any one node of the group, drawn by NATS (a queue group), and there to its members in turn. A
// subscription of QoS 0 is handed messages without the stream.
//
// The member's consumer comes before the group's, and the last member that is forgotten takes that with it; one whose
// members' nodes all died is removed by any node, orphansEvery to twice that after the members' consumers are gone
// (orphanAfter; that of a kept session stays until the session ends). Members that come and go at the very moment when the
// last one is forgotten may find the consumer gone; it is made again within shareTick, and what was published between is
// missed.
//
// # Discards
//
// Deleting a staged copy is a call of the JetStream API, and one call per message costs more than the message. Discards
// are gathered instead, off the response path: one purge of the client's subject removes everything below the oldest
// message that is not released, see tracker. What waits behind a message whose PUBREL is withheld is purged by identifier,
// a second later. So a crash can leave a released copy behind. What keeps that harmless, besides the guards:
//
//   - an identifier that is used again gets a newer message under the same subject; only the newest one counts;
//   - on resume, [Store.Held] leaves out what this node knows to be released, and asks the delivery stream of each other
//     copy whether its id is known (a publish that carries the id and a condition that fails: the duplicate check comes
//     first, so the answer tells, and nothing is stored).
//
// The streams need nats-server 2.14 or newer, for CONSUMER.RESET.
package staged
