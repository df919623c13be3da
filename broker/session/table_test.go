package session

import (
	"testing"

	"pgregory.net/rapid"
)

// Random puts and removals, dense and colliding identifiers, against a map.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var got table[int]
		want := make(map[uint16]*int)
		ids := rapid.SampledFrom([]*rapid.Generator[uint16]{
			rapid.Uint16Range(1, 12),
			rapid.Uint16Range(65_530, 65_535),
			rapid.Map(rapid.Uint16Range(1, 40), func(n uint16) uint16 { return n << 10 }), // all of one place
			rapid.Uint16Range(1, 65_535),
		}).Draw(t, "identifiers")
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if got.len() != len(want) {
					t.Fatalf("%d entries, want %d", got.len(), len(want))
				}
				seen := 0
				got.each(func(id uint16, v *int) {
					if seen++; want[id] != v {
						t.Fatalf("each gives another value for %d", id)
					}
				})
				if seen != len(want) {
					t.Fatalf("each visits %d entries, want %d", seen, len(want))
				}
				for id, v := range want {
					if got.get(id) != v {
						t.Fatalf("%d is not found", id)
					}
				}
			},
			"put": func(t *rapid.T) {
				id, v := ids.Draw(t, "id"), new(int)
				got.put(id, v)
				want[id] = v
			},
			"remove": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				got.remove(id)
				delete(want, id)
			},
			"get": func(t *rapid.T) {
				if id := ids.Draw(t, "id"); got.get(id) != want[id] {
					t.Fatalf("%d: another value", id)
				}
			},
		})
	})
}

func TestTableOfNothing(t *testing.T) {
	var tab table[int]
	tab.remove(1)
	if tab.get(1) != nil || tab.get(0) != nil {
		t.Error("found in an empty table")
	}
	tab.put(1, new(int))
	tab.remove(0)
	if tab.get(0) != nil || tab.len() != 1 {
		t.Error("0 is no identifier")
	}
}

// Every identifier at once, and then the memory of the burst is given back.
func TestTableOfAll(t *testing.T) {
	var tab table[uint16]
	for id := uint16(65_535); id > 0; id-- {
		tab.put(id, &id)
	}
	for id := uint16(1); id != 0; id++ {
		if v := tab.get(id); v == nil || *v != id {
			t.Fatalf("%d is not found", id)
		}
		tab.remove(id)
	}
	if tab.len() != 0 || len(tab.keys) > tableKept {
		t.Errorf("%d entries, room for %d", tab.len(), len(tab.keys))
	}
}
