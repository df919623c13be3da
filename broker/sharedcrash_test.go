package broker

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// Every broker process is killed while a group is handed messages: each still comes to one member, once. What has been
// handed out, and what the group's consumer has let go of, is in the files or is found out.
func TestSharedOverCrashes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the program and kills it many times; run without -short")
	}
	for name, test := range map[string]struct {
		on           string
		nodes, kills int
	}{
		"a node of its own":                    {StoreStaged, 1, 5},
		"a cluster":                            {StoreStaged, 3, 3},
		"a node of its own that has a journal": {StoreJournal, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runSharedCrashes(t, test.on, test.nodes, test.kills)
		})
	}
}

func runSharedCrashes(t *testing.T, on string, nodes, kills int) {
	c := startCrashes(t, on, nodes)
	const size = 4
	members := make([]*receiver, size)
	var subscribed, receiving, publishing sync.WaitGroup
	var mu sync.Mutex
	times := map[string]int{}            // that a message came
	total := -1                          // how many there are; -1 while that is not known
	whole := func(took ...string) bool { // whether all of them have come, with these
		mu.Lock()
		defer mu.Unlock()
		for _, payload := range took {
			times[payload]++
		}
		return total >= 0 && len(times) >= total
	}
	for i := range members {
		r := &receiver{t: t, pending: map[uint16]string{}}
		members[i] = r
		id := fmt.Sprintf("m%d", i)
		subscribed.Add(1)
		receiving.Go(func() {
			p := c.login(id, true)
			if p == nil {
				subscribed.Done()
				return
			}
			p.subscribe("$share/g/k/+", 2)
			subscribed.Done()
			for silent := 0; silent < 3 && p != nil; { // connections after all have come, in a row, that brought nothing
				had, all := len(r.got), whole()
				r.connection(p, 1<<30, time.Now().Add(3*time.Second))
				whole(r.got[had:]...)
				if silent++; !all || len(r.got) > had || len(r.pending) > 0 {
					silent = 0
				}
				if time.Now().After(c.end) {
					return // what never came is judged
				}
				p = c.login(id, false)
			}
			if p != nil {
				_ = p.nc.Close()
			}
		})
	}
	subscribed.Wait()
	u := newUnreliable(t, "p", "k/1", 32, rand.New(rand.NewPCG(c.rng.Uint64(), 1)))
	u.text, u.longest = "0-", 2*time.Second
	u.connect = func(first bool) *peer { return c.login(u.id, first) }
	u.more = func(int) bool {
		select {
		case <-c.over:
			return false
		default:
			return true
		}
	}
	publishing.Go(func() { u.run() })
	for range kills {
		c.kill()
	}
	close(c.over)
	publishing.Wait()
	mu.Lock()
	total = u.next
	mu.Unlock()
	receiving.Wait()
	for i, r := range members {
		t.Logf("member %d: %d messages, %d came again", i, len(r.got), r.again)
	}
	var wrong []string
	for n := range u.next {
		if k := times[u.message(n)]; k != 1 {
			wrong = append(wrong, fmt.Sprintf("%s %d times", u.message(n), k))
		}
	}
	if len(wrong) > 0 || len(times) != u.next {
		t.Errorf("%d of %d messages, %d not once: %s", len(times), u.next, len(wrong), strings.Join(wrong[:min(len(wrong), 20)], ", "))
	}
	if u.next < 20*kills {
		t.Errorf("only %d messages were published around %d kills", u.next, kills)
	}
}
