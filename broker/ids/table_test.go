package ids

import (
	"testing"

	"pgregory.net/rapid"
)

// Random puts and removals, dense and colliding identifiers, against a map.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var got Table[int]
		want := make(map[uint16]*int)
		ids := rapid.SampledFrom([]*rapid.Generator[uint16]{
			rapid.Uint16Range(0, 12),
			rapid.Uint16Range(65_530, 65_535),
			rapid.Map(rapid.Uint16Range(1, 40), func(n uint16) uint16 { return n << 10 }), // all of one place
			rapid.Uint16Range(1, 65_535),
		}).Draw(t, "identifiers")
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if got.Len() != len(want) {
					t.Fatalf("%d entries, want %d", got.Len(), len(want))
				}
				seen := 0
				got.Each(func(id uint16, v *int) {
					if seen++; want[id] != v {
						t.Fatalf("each gives another value for %d", id)
					}
				})
				if seen != len(want) {
					t.Fatalf("each visits %d entries, want %d", seen, len(want))
				}
				for id, v := range want {
					if got.Get(id) != v {
						t.Fatalf("%d is not found", id)
					}
				}
			},
			"put": func(t *rapid.T) {
				id, v := ids.Draw(t, "id"), new(int)
				got.Put(id, v)
				want[id] = v
			},
			"remove": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				got.Remove(id)
				delete(want, id)
			},
			"get": func(t *rapid.T) {
				if id := ids.Draw(t, "id"); got.Get(id) != want[id] {
					t.Fatalf("%d: another value", id)
				}
			},
		})
	})
}

func TestTableOfNothing(t *testing.T) {
	var tab Table[int]
	tab.Remove(1)
	if tab.Get(1) != nil || tab.Get(0) != nil {
		t.Error("found in an empty table")
	}
	tab.Put(1, new(int))
	tab.Remove(0)
	if tab.Get(0) != nil || tab.Len() != 1 {
		t.Error("what is under 0 is another thing than what is under 1")
	}
}

// Every identifier at once, and then the memory of the burst is given back.
func TestTableOfAll(t *testing.T) {
	var tab Table[uint16]
	for id := uint16(65_535); id > 0; id-- {
		tab.Put(id, &id)
	}
	for id := uint16(1); id != 0; id++ {
		if v := tab.Get(id); v == nil || *v != id {
			t.Fatalf("%d is not found", id)
		}
		tab.Remove(id)
	}
	if tab.Len() != 0 || len(tab.keys) > tableKept {
		t.Errorf("%d entries, room for %d", tab.Len(), len(tab.keys))
	}
}
