package journal

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"inflight/broker/store"
	"inflight/broker/store/storetest"
)

// A member of a node that died gets nothing any more, and what it had not taken is for the others; one that was only
// taken for dead is a member again by itself.
func TestMembersOfANodeThatIsGone(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until a node is missed; run without -short")
	}
	m := single(t)
	one, two := m.open(t), m.open(t)
	a, b := storetest.NewEnv(t, one), storetest.NewEnv(t, two)
	group := "$share/g/" + a.Root + "/#"
	other := b.SubscribeAs("b", group, 2, true)

	// The session of this member is stuck with the first message that it gets.
	handed, stuck := make(chan store.Delivery, 1), make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	sub := store.Subscription{Filter: group, QoS: 2}
	if _, err := one.Subscribe(starting(t), "a", sub, true, func(d store.Delivery) { handed <- d; <-stuck }); err != nil {
		t.Fatal(err)
	}
	r := &record{kind: kindGone, ref: pos(one.commit.author)}
	before := seatOf(two, "a", group)
	if _, err := two.do(starting(t), r); err != nil {
		t.Fatal(err)
	}
	await(t, "the member that is there after all", func() bool { now := seatOf(two, "a", group); return now != 0 && now != before })

	for i := range 6 {
		b.Publish(b.Msg(2, fmt.Sprint(i)))
	}
	other.Want("every other one", "0", "2", "4")
	if d := <-handed; string(d.Message.Payload) != "1" {
		t.Errorf("the other member got %q first, want 1", d.Message.Payload)
	}
	crash(one)
	died := time.Now()
	// In any order: where this machine stands still, the node was missed before, and what it had not taken dealt anew.
	var got []string
	for range 2 {
		d := other.Next("what the lost node had not taken")
		got = append(got, string(d.Message.Payload))
		d.Settle()
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"3", "5"}) {
		t.Errorf("the other member got %q, which the lost node had not taken, want 3 and 5", got)
	}
	t.Logf("after %v", time.Since(died))
	b.Publish(b.Msg(2, "6"))
	other.Want("there is nobody else", "6")
	// What it had taken is its own, wherever it comes back [MQTT-4.8.2-4].
	b.SubscribeAs("a", group, 2, true).Want("what it had taken", "1")
}

// seatOf is where a member sits, in the state of a store; 0: nowhere.
func seatOf(s *Store, client, filter string) pos {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sess := s.st.sessions[client]; sess != nil && sess.subs[filter] != nil {
		return sess.subs[filter].seat
	}
	return 0
}

// A slow member holds up what it was handed and no more; the group's queue has a limit, and who meets it is told.
func TestGroupLimits(t *testing.T) {
	message := func(payload string) record {
		return record{kind: kindPublish, data: store.Encode(nil, &store.Message{Topic: "q", Payload: []byte(payload), QoS: 1})}
	}
	s := newState()
	s.limits.queued, s.limits.credit = 6, 2
	filter := "$share/g/q"
	seat := func(client string) record {
		return record{kind: kindSubscribe, client: []byte(client), data: []byte(`{"filter":"` + filter + `","qos":1}`)}
	}
	s.applyBytes(1, pack(1, 1, seat("slow"), seat("quick")), nil)
	s.applyBytes(2, pack(1, 2, message("0"), message("1"), message("2"), message("3"), message("4"), message("5"), message("6")), nil)
	g := s.groups[filter]
	slow, quick := s.sessions["slow"].subs[filter], s.sessions["quick"].subs[filter]
	if slow.waiting != 2 || quick.waiting != 2 || len(g.pool) != 2 || !g.full {
		t.Fatalf("%d and %d were handed out, %d wait, full %v; want 2, 2, 2 and a seventh dropped", slow.waiting, quick.waiting, len(g.pool), g.full)
	}
	var settles settled
	for e := range quick.queue.all() {
		settles.add(e.pos())
	}
	s.applyBytes(3, pack(1, 3, record{kind: kindSettle, client: []byte("quick"), ref: quick.number, data: settles.b}), nil)
	if slow.waiting != 2 || quick.waiting != 2 || len(g.pool) != 0 || g.queued != 4 {
		t.Errorf("%d and %d are handed out, %d wait, %d in all; want 2, 2, 0, 4", slow.waiting, quick.waiting, len(g.pool), g.queued)
	}
	check(t, s)
}
