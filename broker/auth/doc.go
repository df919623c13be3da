// Package auth decides who a client is and what it may publish and subscribe to. It reads two files and opens no
// connection; package listen says what a connection proved before its CONNECT, and package broker asks and acts.
//
// # Password file
//
// One user a line, "user:hash", the hash by bcrypt ($2a$, $2b$ or $2y$, cost 4 to 16). Lines that are empty or start with
// '#' are skipped. A user name may hold colons, because a hash does not; it may not start with '#' nor hold control
// characters. A user that is there twice, or anything else that is not a user, is an error with file and line.
//
// # ACL file
//
// One rule a line:
//
//	WHO...  allow|deny  publish|subscribe|both  FILTER
//
//	# devices write below their own name and read their commands
//	user device-*              allow  publish    devices/%u/#
//	user device-*              allow  subscribe  commands/%u/+
//	user dash client wall-*    allow  subscribe  devices/#
//	anonymous                  allow  both       public/#
//	everyone                   deny   both       $SYS/#
//
// WHO is everyone, anonymous, or user PATTERN and client PATTERN, one of them or both; in a pattern '*' stands for any run
// of characters. "user *" is everybody who proved a name. A Client Identifier is whatever the client says: a client
// pattern narrows, it proves nothing. Fields that hold blanks or a leading '#' are written in double quotes, as Go strings
// are. Lines that are empty or start with '#' are skipped.
//
// In FILTER %u stands for the user name, %c for the Client Identifier and %% for '%'. A name that would change the shape of
// the filter (an empty one, one with '/', '+' or '#', or a leading '$') never widens a right: an allow rule then does not
// apply, and a deny rule denies everything from that level on.
//
// The first rule that decides wins; what no rule decides is denied. A PUBLISH is decided by the first rule whose filter
// matches its Topic Name. A subscription is allowed by a rule whose filter covers it, every topic that it can match, and
// denied by a rule whose filter has a single topic in common with it. A shared subscription ($share/NAME/FILTER) is judged by
// its FILTER. Without an ACL file everything is allowed.
//
// # Values and the cache
//
// Passwords, ACL and Policy are immutable: a reload makes new ones and the old ones stay right for whoever still holds
// them. bcrypt is slow on purpose, so Checker runs few at a time, bounds how many connections wait for it, and remembers
// results: the last password that was right for each user and a bounded number of wrong ones, as keyed digests under a
// random key that never leaves the process. A digest covers the user's hash, so that a changed password needs no
// invalidation.
package auth
