// Package topic is everything about MQTT Topic Names and Topic Filters that needs no connection: validity and matching
// (MQTT 3.1.1, section 4.7), a tree of subscriptions, and the mapping to NATS subjects. No I/O, no locks, no clock.
//
// # Topics as subjects
//
// [Subject] maps each Topic Name to one legal NATS subject, and [SubjectFilter] maps a Topic
// Filter to the subjects that a NATS consumer must filter by, such that a filter matches a name exactly if one of its
// subjects matches the name's subject.
//
//	topic            subject
//	a/b              t.a.b          a level is a token
//	$SYS/load        s.SYS.load     a leading '$' is not written: it is the branch s
//	/a//b            t.%.a.%.b      an empty level, which NATS does not have, is the token %
//	v1.2/50 %        t.v1%2E2.50%20%25
//	+/b              t.*.b
//	a/#              t.a and t.a.>  '#' includes its parent level, '>' does not
//	#                t.>
//	$SYS/#           s.SYS and s.SYS.>
//
// The branch token comes first because of [MQTT-4.7.2-1]: a filter that starts with a wildcard must not match a name that
// starts with '$'. Such a filter maps into branch t, where no such name is, so the NATS wildcards need no exception.
//
// Within a token %XX stands for a byte that is not written as it is: control characters and the space (white space is
// not legal in a subject; JetStream's subject index cannot hold 0x7F), the characters . * > with a meaning in subjects,
// % itself, and U+FFFD (JetStream's file store takes it for a sign of corruption when it recovers an index). There is
// one way only to write each byte, so the mapping is injective. A subject is at most three times as long as its topic,
// plus two bytes; whether the server accepts that length is its configuration's matter.
package topic
