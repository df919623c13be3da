package topic

// subscribers are those of one filter, a slice because it is what visiting is fastest over. The index is made only once
// there are many: most filters have few subscribers, and finding one among few needs no map.
type subscribers[V any] struct {
	list  []subscriber[V]
	index map[string]int // position in list by key; nil while the list is short
}

type subscriber[V any] struct {
	key string
	v   V
}

// indexAbove is the number of subscribers above which they are indexed.
const indexAbove = 16

func (s *subscribers[V]) visit(visit func(key string, v V)) {
	for i := range s.list {
		visit(s.list[i].key, s.list[i].v)
	}
}

// find returns the position of key, or -1.
func (s *subscribers[V]) find(key string) int {
	if s.index != nil {
		if i, ok := s.index[key]; ok {
			return i
		}
		return -1
	}
	for i := range s.list {
		if s.list[i].key == key {
			return i
		}
	}
	return -1
}

// add sets the value of key in the list at p, which is nil when empty.
func add[V any](p **subscribers[V], key string, v V) (replaced bool) {
	if *p == nil {
		*p = &subscribers[V]{}
	}
	s := *p
	if i := s.find(key); i >= 0 {
		s.list[i].v = v
		return true
	}
	s.list = append(s.list, subscriber[V]{key, v})
	switch {
	case s.index != nil:
		s.index[key] = len(s.list) - 1
	case len(s.list) > indexAbove:
		s.index = make(map[string]int, 2*len(s.list))
		for i := range s.list {
			s.index[s.list[i].key] = i
		}
	}
	return false
}

// remove removes key from the list at p; the last takes its place, so that removing is as fast as finding.
func remove[V any](p **subscribers[V], key string) bool {
	s := *p
	if s == nil {
		return false
	}
	i := s.find(key)
	if i < 0 {
		return false
	}
	last := len(s.list) - 1
	s.list[i] = s.list[last]
	s.list[last] = subscriber[V]{} // let go of what it refers to
	s.list = s.list[:last]
	if last == 0 {
		*p = nil
		return true
	}
	if s.index != nil {
		delete(s.index, key)
		if i < last {
			s.index[s.list[i].key] = i
		}
	}
	return true
}
