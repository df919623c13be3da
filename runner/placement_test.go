package runner

import (
	"reflect"
	"testing"

	"inflight/runner/result"
)

// The second look at a pass notes what is another than at the first.
func TestAddPlacement(t *testing.T) {
	first := result.Placement{Arm: "A", Pass: 1, Leaders: leadersOf(map[string]string{"t": "n2", "s": "n1"})}
	if want := []result.Leader{{Stream: "s", Node: "n1"}, {Stream: "t", Node: "n2"}}; !reflect.DeepEqual(first.Leaders, want) {
		t.Fatalf("leaders %v, want %v", first.Leaders, want)
	}
	all := addPlacement(nil, first)
	all = addPlacement(all, result.Placement{Arm: "B", Pass: 1, Leaders: first.Leaders})
	all = addPlacement(all, first)
	if len(all) != 2 || all[0].Moved != nil || all[1].Moved != nil {
		t.Errorf("nothing moved: %+v", all)
	}
	all = addPlacement(all, result.Placement{Arm: "A", Pass: 1, Leaders: leadersOf(map[string]string{"t": "n3", "s": "n1"})})
	if want := []result.Leader{{Stream: "t", Node: "n3"}}; len(all) != 2 || !reflect.DeepEqual(all[0].Moved, want) {
		t.Errorf("%+v, want %v moved", all, want)
	}
	if all = addPlacement(all, result.Placement{Arm: "A", Pass: 2}); len(all) != 3 {
		t.Errorf("the next pass: %+v", all)
	}
}

func TestConnectionsTo(t *testing.T) {
	for _, c := range []struct {
		all  int
		want []int
	}{{1, []int{1, 0, 0}}, {2, []int{1, 1, 0}}, {3, []int{1, 1, 1}}, {10, []int{4, 3, 3}}, {7, []int{7}}} {
		for i, want := range c.want {
			if got := connectionsTo(i, len(c.want), c.all); got != want {
				t.Errorf("%d connections, node %d of %d: %d, want %d", c.all, i+1, len(c.want), got, want)
			}
		}
	}
}
