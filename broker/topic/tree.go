package topic

import "strings"

// Tree holds subscriptions: a value for each pair of a Topic Filter and a key, the key being who subscribed. The zero
// Tree is empty and ready. It is not safe for concurrent use.
//
// It is a trie with a node for each level of each filter. Matching a name of n levels follows at most three edges at
// each level (the level itself, '+', '#'), whatever the number of subscriptions, where comparing each filter in turn
// costs the more the more there are.
//
// Invariants: a node other than the root holds a subscription or has a child; '+' and '#' are never literal children.
type Tree[V any] struct {
	root node[V]
	len  int
}

// node is one level. Most nodes have one child, so the first is kept without a map: a filter of 65,535 bytes can have
// as many levels, and a client must not be able to turn those bytes into megabytes.
type node[V any] struct {
	name     string // the level of first
	first    *node[V]
	children map[string]*node[V] // the literal levels other than name
	plus     *node[V]            // the level '+'
	here     *subscribers[V]     // filters that end at this level
	below    *subscribers[V]     // filters that end with '#' after this level
}

// Add adds a subscription. With the same filter and key there already, its value is replaced: a Topic Filter identical to
// an existing one replaces it [MQTT-3.8.4-3]. filter must be valid, see [ValidFilter]; the tree keeps no reference to it.
func (t *Tree[V]) Add(filter, key string, v V) (replaced bool) {
	n := &t.root
	for more := true; more; {
		var level string
		level, filter, more = strings.Cut(filter, "/")
		if level == "#" && !more {
			replaced = add(&n.below, key, v)
			if !replaced {
				t.len++
			}
			return replaced
		}
		n = n.make(level)
	}
	replaced = add(&n.here, key, v)
	if !replaced {
		t.len++
	}
	return replaced
}

// Remove removes a subscription and reports whether it was there. Filters are compared character by character
// [MQTT-3.10.4-1].
func (t *Tree[V]) Remove(filter, key string) bool {
	if !t.root.remove(filter, key) {
		return false
	}
	t.len--
	return true
}

// Match calls visit for each subscription whose filter matches a valid Topic Name: once for each, also where filters of
// one key overlap; in no particular order. visit must not change the tree. Match does not allocate.
func (t *Tree[V]) Match(name string, visit func(key string, v V)) {
	t.root.match(name, true, !reserved(name), visit)
}

// Len is the number of subscriptions.
func (t *Tree[V]) Len() int { return t.len }

// match visits what matches the levels of name from here on. Without more there are none left: the whole name has
// matched. wild is false where a wildcard must not match, at the first level of a name that starts with '$'.
func (n *node[V]) match(name string, more, wild bool, visit func(key string, v V)) {
	for {
		if wild && n.below != nil {
			n.below.visit(visit)
		}
		if !more {
			if n.here != nil {
				n.here.visit(visit)
			}
			return
		}
		var level string
		level, name, more = strings.Cut(name, "/")
		literal := n.child(level)
		if wild && n.plus != nil {
			if literal == nil {
				n = n.plus
				continue
			}
			n.plus.match(name, more, true, visit)
		}
		if literal == nil {
			return
		}
		n, wild = literal, true
	}
}

// child returns the node of a literal level, or nil.
func (n *node[V]) child(level string) *node[V] {
	if n.first != nil && n.name == level {
		return n.first
	}
	return n.children[level]
}

// make returns the node of a level of a filter, new if need be.
func (n *node[V]) make(level string) *node[V] {
	if level == "+" {
		if n.plus == nil {
			n.plus = &node[V]{}
		}
		return n.plus
	}
	if c := n.child(level); c != nil {
		return c
	}
	c := &node[V]{}
	level = strings.Clone(level)
	switch {
	case n.first == nil:
		n.name, n.first = level, c
	case n.children == nil:
		n.children = map[string]*node[V]{level: c}
	default:
		n.children[level] = c
	}
	return c
}

// unlink drops the child of a level.
func (n *node[V]) unlink(level string) {
	switch {
	case level == "+":
		n.plus = nil
	case n.first != nil && n.name == level:
		n.name, n.first = "", nil
	default:
		delete(n.children, level)
	}
}

// size is the number of things in a node: children and lists of subscribers.
func (n *node[V]) size() int {
	size := len(n.children)
	for _, has := range [...]bool{n.first != nil, n.plus != nil, n.here != nil, n.below != nil} {
		if has {
			size++
		}
	}
	return size
}

// remove removes a subscription below the root n. Nodes that become empty go with it, or a client that subscribes to ever
// new filters would fill the memory although it unsubscribes from all of them. They are one chain down to the filter's
// node; it is cut where it leaves a node that holds something else.
func (n *node[V]) remove(filter, key string) bool {
	top, edge := n, ""
	at := n
	list := (**subscribers[V])(nil)
	for more := true; more; {
		var level string
		level, filter, more = strings.Cut(filter, "/")
		if level == "#" && !more {
			list = &at.below
			break
		}
		next := at.plus
		if level != "+" {
			next = at.child(level)
		}
		if next == nil {
			return false
		}
		if at == n || at.size() > 1 {
			top, edge = at, level
		}
		at = next
	}
	if list == nil {
		list = &at.here
	}
	if !remove(list, key) {
		return false
	}
	if at != n && at.size() == 0 {
		top.unlink(edge)
	}
	return true
}
