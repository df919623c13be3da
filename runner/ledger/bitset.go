package ledger

import "math/bits"

const pageBits = 1 << 16

type page [pageBits / 64]uint64

// bitset is a set of small numbers in pages that are made when they are first needed.
type bitset struct{ pages []*page }

// add puts n in the set and reports whether it was absent. n must be in [0, MaxSequence).
func (s *bitset) add(n int64) bool {
	i := int(n / pageBits)
	for i >= len(s.pages) {
		s.pages = append(s.pages, nil)
	}
	if s.pages[i] == nil {
		s.pages[i] = new(page)
	}
	word, bit := &s.pages[i][n%pageBits/64], uint64(1)<<(n%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}

func (s *bitset) page(i int) *page {
	if i < len(s.pages) && s.pages[i] != nil {
		return s.pages[i]
	}
	return &page{}
}

// without returns how many numbers of s are not in other, and the smallest of them (-1 if none).
func (s *bitset) without(other *bitset) (count, first int64) {
	first = -1
	for i, p := range s.pages {
		if p == nil {
			continue
		}
		q := other.page(i)
		for j, word := range p {
			left := word &^ q[j]
			if left != 0 && first < 0 {
				first = int64(i)*pageBits + int64(j)*64 + int64(bits.TrailingZeros64(left))
			}
			count += int64(bits.OnesCount64(left))
		}
	}
	return count, first
}

// from returns how many numbers of s are n or more, and the smallest of them (-1 if none).
func (s *bitset) from(n int64) (count, first int64) {
	first = -1
	for i := int(n / pageBits); i < len(s.pages); i++ {
		if s.pages[i] == nil {
			continue
		}
		for j, word := range s.pages[i] {
			base := int64(i)*pageBits + int64(j)*64
			switch {
			case base+64 <= n:
				continue
			case base < n:
				word &= ^uint64(0) << (n - base)
			}
			if word != 0 && first < 0 {
				first = base + int64(bits.TrailingZeros64(word))
			}
			count += int64(bits.OnesCount64(word))
		}
	}
	return count, first
}
