// Package journal keeps everything in one journal: a JetStream stream to which the records of all connections of all nodes
// are appended in batches, and which every node applies in the same order. A response leaves once its record is applied on
// the node that answers, and so is committed.
//
// # Why a journal
//
// A QoS 2 exchange is two changes that must be durable, PUBLISH and PUBREL. With an append for each, and the staged copy's
// discard as a third, the price of a message is round trips through a majority of the nodes. In a journal the second change
// is a record of a few bytes that names the first, and a round trip is shared by every record that came while the one
// before was under way. A release turns a held message into a delivery and discards the held copy in one record, so there
// is no moment at which one has happened and the other has not, and nothing that has to be remembered for a while so that
// a repetition is recognised.
//
// # Streams
//
//	INF_journal    inf.j                  batches; its leader publishes each on inf.a as soon as it is committed
//	INF_snapshots  inf.k.c.<id>.<number>  chunks of snapshots
//	               inf.k.m                their manifests
//	               inf.q.<topic>          QoS 0 publications, on plain NATS
//	               inf.g.<member>         those that a member of a group is handed
//	               inf.h.<author>         where an author answers as long as it is there
//
// # Records
//
// A batch is one message of INF_journal: version (1 byte), author (8), number (8), records, CRC-32C (4). An author is one
// life of a store, its numbers count from 1. The position of a record is the sequence of its batch in the stream, shifted
// left by 16, plus its index in the batch. A record is its kind (1 byte) and then
//
//	sync          nothing: its own position is wanted
//	claim         client: from here on the author serves it; the position is the session's epoch
//	session       who, record as JSON; its position is the record's Revision
//	swap          who, Revision, record: written if the session still has that one
//	sessionGone   who, Revision: removed unless it is newer; the claim goes with it
//	publish       message
//	hold          who, Packet Identifier, message; its position is the Ref
//	release       who, Ref: the held message is delivered and held no more
//	discard       who, Ref
//	forget        who: all that is held goes
//	subscribe     who, subscription as JSON
//	unsubscribe   who, Topic Filter
//	settle        who, position of the subscription, positions of deliveries
//	outbound      who, bytes: what the session has sent and not seen acknowledged
//	retain        message: a QoS 0 message that is to be retained
//	carry         position of a message, message: its bytes are here from now on
//	trim          sequence: the journal before it is not needed
//	join          who, subscription as JSON: as subscribe, of a shared one that ends with its connection
//	take          who, seat, number: the member has its entries up to there
//	part          who, seat: the member is not connected any more
//	back          who, seat, numbers: entries that were taken and not sent
//	gone          author: all its members are not connected any more
//	limit         bytes that the queues of a session, or of a group, hold at most
//
// who is the epoch, or 0 and the Client Identifier for a client that was never claimed. A number is a varint, a string or a
// message has its length before it, a message is as [store.Encode] makes it.
//
// # State
//
// The state is the journal applied, by code without I/O and without a clock (state.go, deliver.go): sessions, held messages,
// subscriptions with the queue of what each has not settled, retained messages. A delivery is an entry in a queue: the
// position of the record that delivered it, which is its Seq, and the position of the message's bytes. Seq grows with the
// order of delivery and is the same on every node for ever, so what a session noted about it on one node is good on
// another. Two rules make the same batches have the same effect whatever happened on the way:
//
//   - a batch has effect if its number is the next of its author, else none. So an append whose outcome is not known is
//     simply sent again, for as long as it takes, and a batch that overtook the one before it has no effect until that one
//     is there. No duplicate window is involved.
//   - a record of a session has effect if its epoch is that of the client's last claim, else none, and its author is told.
//     A node that stood still, and does not know yet that a client went on elsewhere, can append what it likes.
//
// Feeds that keep nothing (of sessions that end with their connection, and at QoS 0) are no part of the state: they get
// what is applied while they are open.
//
// # Shared subscriptions
//
// Who of a group gets a message is part of the state (group.go), so no node has to be asked: each message goes to the next
// connected member, in the order in which they came, that has fewer than 256 which it has not settled; if there is none it
// waits in the group's pool. Members that keep nothing are part of the state as well. A member's seat is the position of
// the record that connected it. An entry has a number of its own in the member's queue, because a message can come to a
// member after younger ones; it grows, and is a delivery's Seq.
//
// Before a feed hands a member's entries over it takes them, by a record that is waited for: one more commit, shared as
// all are. So the state knows what may have been sent. Entries that were taken stay the member's, across connections and
// nodes [MQTT-4.8.2-4]; those that were not go back to the pool, before what is there, when the member parts, when another
// node claims its client, or when its node is gone. What was taken and then not sent can be given back for as long as the
// seat lasts: after it the session's next feed finds those entries, and may send them. When the membership ends, what was
// taken and not settled goes to another member at QoS 1, and at QoS 2 to nobody [MQTT-4.8.2-5].
//
// Nodes ask every half second whether the authors that have members are still there. If NATS says twice in a row that nobody
// listens, a gone record parts the members. A node that is there after all sees it and connects its members again.
//
// QoS 0 publications are no records: the publisher's node picks the member, each node taking turns of its own.
//
// # The commit path
//
// [Store.Hold] and the like encode their record into the batch in the making (commit.go). If no batch is under way a
// goroutine is told to send it, which finds with it what the connection has read at once; if one is, it leaves with all that
// has gathered when that one is applied, or as soon as it is full. There is no timer: alone on a broker, a record is a batch.
// Two small batches at a time would be faster where the network is slow and the processors idle; where they are busy they are
// slower, because a batch costs them as much as a hundred of its records.
//
// JetStream replicates a batch, and with its commit the stream's leader publishes it to every node (RePublish); the leader's
// own node has it without a further hop. A node that sees a gap in the sequence, or hears of a stored batch that does not
// come, or has heard nothing for a second, reads the journal. Then the batch is applied, feeds are woken, and the operations
// of its author are reported.
//
// Why a reported operation is safe: it was applied here, so it is in the stream, in which JetStream keeps what a majority
// has (and has synced, if the node is configured so); every other node applies it before anything that is appended later.
// And a node that takes a client over appends a claim first, waits until it is applied, and so has applied all that was
// ever reported for the client.
//
// An operation that is not applied within Config.Timeout fails: its connection is closed without the acknowledgement. Its
// record cannot be called back and may have effect later; it is before the claim of the client's next connection, or
// fenced off by it, so what that connection finds stays as it is.
//
// What was settled is not waited for: it goes along with the next batch, or by itself within
// 25 ms. What of it is lost with a node, the session's outbound record makes up for.
//
// # Memory
//
// A queued message is an entry of 13 bytes in each queue and about 48 bytes once; its body is in memory only while a feed
// of this node is about to take it, once for all feeds, up to Config.FeedBytes for a feed and Config.CacheBytes for all.
// Other bodies are read from the journal when they are due, in batches that all readers share (pages). Records that are not
// applied yet are bounded by [maxPending]: whoever brings a message waits then, holding up its connection, and TCP its
// client. So does a journal of Config.MaxBytes; what makes room in it is taken all the same.
//
// # Snapshots and the end of old journal
//
// After Config.Every bytes of journal the node whose batch crossed that line takes a snapshot: the state, encoded under the
// lock (positions, no bodies), checksummed and stored in chunks; then a trim record, then a purge. All nodes know that it
// is that node's turn, so none has to ask; if it fails, the next line finds another. Messages that are still needed and lie
// too far back are carried first: appended again at the end, so a session that is away for a year or a retained message
// costs its own bytes and no more, and the journal is at most about twice as large as what is needed of it, or Every. The
// last Every bytes stay in any case: nodes that are a little behind, and slow feeds, read there.
//
// A start is the newest snapshot and the journal after it. Two snapshots are kept: if a machine without sync loses the end
// of the journal, a snapshot may be ahead of what is left, and the older one is used. A torn end of a
// file JetStream cuts off, and package node says so; a batch whose checksum is wrong has no effect and is said so in the log.
//
// # Limits
//
// A session's queues hold up to 1,048,576 messages and Config.QueueBytes, and so do a group's; further ones it does not get.
// As all nodes must drop the same, that limit is in the journal, and the node that was started last says what it is. A feed that keeps nothing has
// the same limit of messages, and must read what is not in memory before the journal is trimmed. Each message that a
// subscription does not get for such a reason is counted (Config.Dropped) and the first one is logged.
//
// # When it goes wrong
//
//   - The leader changes or a node is lost: appends are sent again until they are there; nothing fails that finds a
//     majority within the time-out.
//   - No majority, a full disk: operations fail after the time-out, connections are closed without acknowledgement, new
//     ones are refused, because their claim is not committed. When there is a majority again all goes on by itself. A full
//     disk makes JetStream give up on its node; package node starts it again once there is room. Without sync a member may
//     have confirmed what its disk then did not take: with the disks of a majority full at the same moment that can be lost.
//   - A node falls behind what was trimmed: it goes on from a snapshot, with its feeds.
//   - The end of the journal is lost under running nodes: they say so and apply it anew. What was under way fails.
//   - The journal is deleted: one of the nodes makes it anew, above all sequences that there were, and its state is the
//     snapshot from which all go on. Messages that were not in memory are lost, counted and logged.
//
// # What it leaves open
//
// A node applies everything, whichever clients it serves: nodes add safety and places to connect, not throughput. A
// publication of QoS 1 of a node that stood still can come late, after the same client has sent it again elsewhere: at
// least once, as QoS 1 says.
package journal
