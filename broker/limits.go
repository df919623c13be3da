package broker

import (
	"math"
	"time"

	"inflight/broker/ops"
	"inflight/broker/packet"
)

// Defaults is the configuration of a broker that is told nothing, every default filled in.
func Defaults() Config { return Config{Pipeline: true}.withDefaults() }

// validateLimits checks the limits and what belongs to the operations listener.
func (c *Config) validateLimits(bad func(format string, args ...any)) {
	for _, l := range []struct {
		what     string
		value    int
		min, max int
	}{
		{"the packet limit", c.MaxPacket, 128, packet.MaxRemaining},
		{"the outbound window", c.Outbound, 1, 65_535}, // identifiers are 16 bits
		{"the window", c.Window, 1, 1 << 20},
		{"the number of copies in memory", c.Copies, 1, 1 << 20},
		{"the size of the copies in memory", c.CopyBytes, 1, 1 << 40},
		{"the limit of subscriptions", c.MaxSubscriptions, 1, 1 << 24},
		{"the queue limit", c.QueueBytes, 1 << 10, 1 << 50},
		{"the limit of the journal", c.JournalBytes, 0, 1 << 50},
		{"the limit of messages of the journal in memory", c.JournalCache, 1 << 10, 1 << 40},
		{"the limit of messages in memory for one subscription", c.JournalAhead, 1 << 10, 1 << 40},
		{"the journal between two snapshots", c.JournalSnapshot, 64 << 10, 1 << 40},
	} {
		if l.value >= 0 && l.value < l.min || l.value > l.max {
			bad("%s is %d, want %d to %d", l.what, l.value, l.min, l.max)
		}
	}
	if c.JournalBytes > 0 && c.JournalBytes < 1<<20 {
		bad("the limit of the journal is %d, want at least %d, or 0 for half of what JetStream may store", c.JournalBytes, 1<<20)
	}
	for _, d := range []struct {
		what  string
		value time.Duration
	}{
		{"the CONNECT time-out", c.ConnectTimeout},
		{"the store time-out", c.StoreTimeout},
		{"the write time-out", c.WriteTimeout},
		{"the drain time-out", c.DrainTimeout},
		{"the interval of $SYS messages", c.SysInterval},
	} {
		if d.value < 0 {
			bad("%s is negative", d.what)
		}
	}
	for _, d := range []struct {
		what  string
		value time.Duration
		max   uint32 // what the property can say, in seconds
	}{
		{"the maximum of Keep Alive", c.MaxKeepAlive, math.MaxUint16},
		{"the maximum of the Session Expiry Interval", c.MaxSessionExpiry, neverExpires - 1},
	} {
		if d.value < 0 || d.value%time.Second != 0 || d.value/time.Second > time.Duration(d.max) {
			bad("%s is %v, want whole seconds up to %d, or 0 for none", d.what, d.value, d.max)
		}
	}
	if c.OpsListen != "" {
		if _, err := ops.Address(c.OpsListen); err != nil {
			bad("%w", err)
		}
	} else if c.Pprof {
		bad("profiles are served on the operations listener: give one with --ops-listen")
	}
}

// durability is what the store will declare, known before it is open.
func (c *Config) durability() string {
	switch {
	case c.Store == StoreMemory:
		return "memory"
	case c.Sync:
		return "file+sync"
	}
	return "file"
}

// limitKeepAlive lowers the Keep Alive of a CONNECT of MQTT 5.0 to the configured maximum; 0, which turns it off, is above
// any. A client of 3.1.1 cannot be told, and would be closed while it keeps what it asked for.
func (c *conn) limitKeepAlive(p *packet.Connect) {
	limit := uint16(c.srv.cfg.MaxKeepAlive / time.Second)
	if limit > 0 && (p.KeepAlive == 0 || p.KeepAlive > limit) {
		p.KeepAlive = limit
		c.serverKeepAlive = packet.Some(limit)
	}
}

// limitExpiry is how long a session may be kept that asks for so many seconds.
func (c *Config) limitExpiry(seconds uint32) uint32 {
	if c.MaxSessionExpiry == 0 {
		return seconds
	}
	return min(seconds, uint32(c.MaxSessionExpiry/time.Second))
}

// atSubscriptionLimit reports whether the session may not have one more filter. Changing one that it has is always
// allowed.
func (cl *client) atSubscriptionLimit(filter string) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.subs[filter] == nil && len(cl.subs) >= cl.srv.cfg.MaxSubscriptions
}
