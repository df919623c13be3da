package topic

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

type pair struct{ filter, key string }

// collect is what Match visits, by key and value: how often.
func collect(tree *Tree[string], name string) map[pair]int {
	got := map[pair]int{}
	tree.Match(name, func(key, v string) { got[pair{v, key}]++ })
	return got
}

func TestTreeMatchesAsMatchDoes(t *testing.T) {
	var tree Tree[string]
	for _, c := range matches {
		tree.Add(c.filter, "k", c.filter) // some are there twice: replaced
	}
	for _, c := range matches {
		if got := collect(&tree, c.name)[pair{c.filter, "k"}]; (got == 1) != c.want || got > 1 {
			t.Errorf("tree visits %q for %q %d times, want %v: %s", c.filter, c.name, got, c.want, c.why)
		}
	}
}

func TestTreeReplacesAndRemoves(t *testing.T) {
	var tree Tree[string]
	want := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	want("a new subscription replaces none", tree.Add("a/+", "k", "1"), false)
	want("another filter of the same key is another subscription", tree.Add("a/#", "k", "2"), false)
	want("another key on the same filter too", tree.Add("a/+", "l", "3"), false)
	want("the same filter and key is replaced", tree.Add("a/+", "k", "4"), true)
	want("and so with #", tree.Add("a/#", "k", "5"), true)
	want("Len counts each once", tree.Len(), 3)
	if diff := cmp.Diff(map[pair]int{{"4", "k"}: 1, {"5", "k"}: 1, {"3", "l"}: 1}, collect(&tree, "a/b"), cmp.AllowUnexported(pair{})); diff != "" {
		t.Errorf("the new values are visited (-want +got):\n%s", diff)
	}
	want("a filter that is not there", tree.Remove("a/b", "k"), false)
	want("a level that is not there", tree.Remove("x/y/z", "k"), false)
	want("a key that is not there", tree.Remove("a/+", "m"), false)
	want("# without subscribers", tree.Remove("#", "k"), false)
	want("failed removals change nothing", tree.Len(), 3)
	for _, p := range []pair{{"a/+", "k"}, {"a/#", "k"}, {"a/+", "l"}} {
		want("remove "+p.filter, tree.Remove(p.filter, p.key), true)
		want("not twice", tree.Remove(p.filter, p.key), false)
	}
	want("empty again", tree.Len(), 0)
	want("no node is left", tree.root.size(), 0)
}

// Removing a filter takes the nodes that only it needs, and no other.
func TestTreeRemoveKeepsTheRest(t *testing.T) {
	for _, c := range []struct{ remove, keep, why string }{
		{"a/b/c", "a/b", "the parent's own subscription"},
		{"a/b/c", "a/b/#", "the parent's '#'"},
		{"a/b/c", "a/x", "a branch two levels up"},
		{"a/b/c", "a/+", "a wildcard branch"},
		{"a/+/c", "a/b", "a branch beside the wildcard"},
		{"a/b", "a/b/c", "a child"},
		{"a/#", "a", "the same node"},
		{"#", "a", "the root keeps its children"},
		{"a/x/y", "a/b", "the child kept without a map, or not"},
		{"x", "a/b", "nothing in common"},
	} {
		for _, first := range []string{c.remove, c.keep} {
			var tree Tree[string]
			tree.Add(first, "k", first)
			tree.Add(c.remove, "k", c.remove)
			tree.Add(c.keep, "k", c.keep)
			if !tree.Remove(c.remove, "k") || tree.Remove(c.remove, "k") || tree.Len() != 1 {
				t.Errorf("%s is not removed once beside %s", c.remove, c.keep)
			}
			name := strings.NewReplacer("+", "z", "#", "z").Replace(c.keep)
			if got := collect(&tree, name); got[pair{c.keep, "k"}] != 1 {
				t.Errorf("%s went with %s: %s", c.keep, c.remove, c.why)
			}
			if !tree.Remove(c.keep, "k") || tree.root.size() != 0 {
				t.Errorf("%s and %s leave nodes behind", c.keep, c.remove)
			}
		}
	}
}

// A filter of the greatest length has 65,536 levels; it must cost no stack overflow and be gone once removed.
func TestTreeDeepFilter(t *testing.T) {
	deep := strings.Repeat("/", MaxLength)
	wild := strings.Repeat("+/", MaxLength/2) + "#"
	var tree Tree[string]
	tree.Add(deep, "k", deep)
	tree.Add(wild, "k", wild)
	if got := collect(&tree, deep); len(got) != 2 {
		t.Errorf("%d subscriptions visited, want 2", len(got))
	}
	if !tree.Remove(deep, "k") || !tree.Remove(wild, "k") || tree.root.size() != 0 {
		t.Error("the deep filters are not gone")
	}
}

// TestTreeModel drives the tree and a plain map with the same operations. The alphabet is small, so that filters share
// levels, match often and are removed often.
func TestTreeModel(t *testing.T) {
	level := rapid.SampledFrom([]string{"", "a", "b", "c", "$a", "+"})
	filter := rapid.Custom(func(t *rapid.T) string {
		levels := rapid.SliceOfN(level, 1, 4).Draw(t, "levels")
		if rapid.Bool().Draw(t, "#") {
			levels = append(levels, "#")
		}
		if s := strings.Join(levels, "/"); s != "" {
			return s
		}
		return "#"
	})
	name := rapid.Map(filter, func(s string) string { return strings.NewReplacer("+", "a", "#", "b").Replace(s) })
	key := rapid.Map(rapid.IntRange(0, 2*indexAbove), strconv.Itoa)
	rapid.Check(t, func(t *rapid.T) {
		var tree Tree[string]
		model := map[pair]string{}
		version := 0
		var added []pair // one at a time, in order
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				p := pair{filter.Draw(t, "filter"), key.Draw(t, "key")}
				version++
				v := fmt.Sprint(version)
				_, there := model[p]
				if got := tree.Add(p.filter, p.key, v); got != there {
					t.Fatalf("Add replaced: %v, want %v", got, there)
				}
				model[p] = v
				added = append(added, p)
			},
			"crowd": func(t *rapid.T) { // more subscribers of one filter than are kept without an index
				f := filter.Draw(t, "filter")
				for i := range 2 * indexAbove {
					p := pair{f, strconv.Itoa(i)}
					version++
					model[p] = fmt.Sprint(version)
					tree.Add(p.filter, p.key, model[p])
				}
			},
			"remove": func(t *rapid.T) {
				p := pair{filter.Draw(t, "filter"), key.Draw(t, "key")}
				if i := rapid.IntRange(0, len(added)).Draw(t, "which"); i < len(added) { // else any: mostly not there
					p = added[i]
				}
				_, there := model[p]
				if got := tree.Remove(p.filter, p.key); got != there {
					t.Fatalf("Remove: %v, want %v", got, there)
				}
				delete(model, p)
			},
			"disperse": func(t *rapid.T) { // all subscribers of one filter go, in any order
				f := filter.Draw(t, "filter")
				keys := []string{}
				for i := range 2*indexAbove + 1 {
					if _, ok := model[pair{f, strconv.Itoa(i)}]; ok {
						keys = append(keys, strconv.Itoa(i))
					}
				}
				for _, k := range rapid.Permutation(keys).Draw(t, "order") {
					if !tree.Remove(f, k) {
						t.Fatalf("%s of %s is not there", k, f)
					}
					delete(model, pair{f, k})
				}
			},
			"match": func(t *rapid.T) {
				n := name.Draw(t, "name")
				want := map[pair]int{}
				for p, v := range model {
					if Match(p.filter, n) {
						want[pair{v, p.key}]++
					}
				}
				if diff := cmp.Diff(want, collect(&tree, n), cmp.AllowUnexported(pair{})); diff != "" {
					t.Fatalf("match %q (-want +got):\n%s", n, diff)
				}
			},
			"": func(t *rapid.T) {
				if tree.Len() != len(model) {
					t.Fatalf("Len is %d, want %d", tree.Len(), len(model))
				}
				checkNodes(t, &tree)
			},
		})
	})
}

// checkNodes checks the invariants in the comment of Tree.
func checkNodes(t *rapid.T, tree *Tree[string]) {
	size := 0
	var walk func(n *node[string], root bool)
	walk = func(n *node[string], root bool) {
		if !root && n.size() == 0 {
			t.Fatalf("a node is left empty")
		}
		for _, s := range []*subscribers[string]{n.here, n.below} {
			if s == nil {
				continue
			}
			if len(s.list) == 0 {
				t.Fatalf("a list is left empty")
			}
			size += len(s.list)
			if s.index != nil && len(s.index) != len(s.list) {
				t.Fatalf("the index has %d keys, the list %d", len(s.index), len(s.list))
			}
		}
		for level, c := range n.children {
			if level == "+" || level == "#" || n.first != nil && level == n.name {
				t.Fatalf("level %q is a literal child, or twice", level)
			}
			walk(c, false)
		}
		for _, c := range []*node[string]{n.first, n.plus} {
			if c != nil {
				walk(c, false)
			}
		}
	}
	walk(&tree.root, true)
	if size != tree.Len() {
		t.Fatalf("%d subscriptions in the nodes, Len is %d", size, tree.Len())
	}
}

// plant is a tree of 10,000 devices with one subscription each, some wildcards on top, and one of them popular.
func plant() *Tree[int] {
	tree := &Tree[int]{}
	for i := range 10_000 {
		tree.Add(fmt.Sprintf("plant/%d/line/%d/+", i%100, i/100), strconv.Itoa(i), i)
	}
	for i, f := range []string{"#", "plant/#", "plant/+/line/3/temperature", "+/7/#", "plant/7/line/3/temperature", "$SYS/#"} {
		tree.Add(f, "w", i)
	}
	for i := range 50 {
		tree.Add("plant/7/line/3/#", strconv.Itoa(i), i)
	}
	return tree
}

func TestTreeMatchDoesNotAllocate(t *testing.T) {
	tree, visited := plant(), 0
	visit := func(string, int) { visited++ }
	if n := testing.AllocsPerRun(100, func() { tree.Match("plant/7/line/3/temperature", visit) }); n != 0 {
		t.Errorf("Match allocates %v times", n)
	}
	if visited != 101*56 {
		t.Errorf("%d visits in 101 matches, want 56 in each", visited)
	}
}

func BenchmarkTreeMatch(b *testing.B) {
	tree, visited := plant(), 0
	visit := func(string, int) { visited++ }
	b.ReportAllocs()
	for b.Loop() {
		tree.Match("plant/7/line/3/temperature", visit)
	}
}

// BenchmarkMatchEach is what the tree saves: each filter in turn.
func BenchmarkMatchEach(b *testing.B) {
	filters := make([]string, 10_000)
	for i := range filters {
		filters[i] = fmt.Sprintf("plant/%d/line/%d/+", i%100, i/100)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, f := range filters {
			Match(f, "plant/7/line/3/temperature")
		}
	}
}
