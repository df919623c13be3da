package journal

import "inflight/broker/store"

// cache counts the bodies that are in memory because a feed of this node is about to want them. A body is there once,
// however many feeds want it, and goes with the last of them. Whoever finds no body reads it from the journal.
type cache struct {
	used  int
	limit int // bytes
}

// put counts one more user of a message's body, and reports whether the body is there: b may be nil, and a full cache
// takes none.
func (c *cache) put(m *msg, b *store.Message) bool {
	if m.body == nil {
		if b == nil || c.used+int(m.size) > c.limit {
			return false
		}
		m.body = b
		c.used += int(m.size)
	}
	m.users++
	return true
}

// drop counts one less.
func (c *cache) drop(m *msg) {
	if m.users--; m.users == 0 {
		m.body = nil
		c.used -= int(m.size)
	}
}
