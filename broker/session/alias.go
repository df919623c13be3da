package session

// maxAliases bounds the Topic Aliases of a connection, whatever its client takes: a topic of up to 64 KiB is kept for each.
const maxAliases = 64

// aliasSize is what a Topic Alias takes in a PUBLISH; a topic that is no longer is not worth one.
const aliasSize = 3

// growth is what the lengths of the properties and of the packet may take more because of it.
const growth = 2

// path is one of the two ways from the sender to the wire. Packets of one keep their order; one that leaves late is
// overtaken by others, but overtakes none.
type path byte

const (
	atOnce path = 1 << iota
	late
)

// aliases are the Topic Aliases towards a client of MQTT 5.0, of one connection [MQTT-3.3.2-7]: given to topics first come,
// first served, up to the Topic Alias Maximum of the client [MQTT-3.1.2-26] [MQTT-3.1.2-27], and never to another topic
// after that, so that it does no harm to say again what one stands for.
//
// Invariant: a PUBLISH without its topic follows one with it on the wire.
type aliases struct {
	max     int
	byTopic map[string]int // index in said
	said    []path         // by Topic Alias - 1: the ways on which it was said what it stands for
}

// reset begins a connection.
func (a *aliases) reset(most int) {
	a.max = min(max(most, 0), maxAliases)
	a.said = a.said[:0]
	clear(a.byTopic)
}

// of returns the Topic Alias of a topic, 0 if it has none, and whether the client knows it by the time that a packet which
// leaves on way arrives.
func (a *aliases) of(topic string, way path) (alias uint16, known bool) {
	if a.max == 0 || len(topic) <= aliasSize {
		return 0, false
	}
	i, ok := a.byTopic[topic]
	if !ok {
		if i = len(a.said); i == a.max {
			return 0, false
		}
		return uint16(i + 1), false
	}
	return uint16(i + 1), a.said[i]&(way|atOnce) != 0
}

// say notes that a packet with the topic and its alias leaves on way.
func (a *aliases) say(topic string, alias uint16, way path) {
	i := int(alias) - 1
	if i == len(a.said) {
		if a.byTopic == nil {
			a.byTopic = make(map[string]int)
		}
		a.byTopic[topic] = i
		a.said = append(a.said, 0)
	}
	a.said[i] |= way
}

// alias returns the Topic Alias for a PUBLISH that takes size bytes without it, 0 for none, and whether its topic can be left
// out. The PUBLISH is sent.
func (s *Sender) alias(topic string, qos byte, size int) (alias uint16, known bool) {
	way := atOnce
	if qos > 0 && s.link.Late {
		way = late
	}
	alias, known = s.aliases.of(topic, way)
	switch {
	case alias == 0 || known:
	case s.link.MaximumPacket > 0 && size+aliasSize+growth > s.link.MaximumPacket: // [MQTT-3.1.2-25]
		return 0, false
	default:
		s.aliases.say(topic, alias, way)
	}
	return alias, known
}
