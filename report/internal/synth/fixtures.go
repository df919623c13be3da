package synth

import (
	"math"
	"time"

	"inflight/runner/result"
)

// published are the rates of a stop-and-wait and of a pipelined broker that are widely quoted, by window.
func published(pipelined bool) func(qos, window int) float64 {
	return func(qos, window int) float64 {
		if qos == 1 {
			return 2_000 * math.Pow(float64(window), 0.6)
		}
		if !pipelined {
			return 816 - 240/float64(window)
		}
		return 20_500 * float64(window) / (float64(window) + 25)
	}
}

// Fixtures are the results that the renderings are tried on, by name. They are not judged yet.
func Fixtures() map[string]*result.Result {
	before := Arm{Target: "reference?store=staged&pipeline=off", Version: "0.1.0", Rate: published(false)}
	after := Arm{Target: "reference?store=staged", Version: "0.1.0", Rate: published(true)}
	two := Run{
		Name: "qos2-pipeline", Question: "What does a pipelined QoS 2 path do that a stop-and-wait one does not?",
		Seed: 1, Arms: []Arm{before, after}, Windows: []int{1, 10, 20, 256}, Passes: 2, Blocks: 3,
		Noise: 0.05, Slot: 0.06, Drift: 0.0005, Control: true, Length: 2 * time.Second,
	}
	all := map[string]*result.Result{"two-arms": two.Result()}

	incorrect := two
	incorrect.Seed = 3
	r := incorrect.Result()
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Arm != "B" || c.Window != 256 || c.Control {
			continue
		}
		c.Ledger.Duplicated, c.Ledger.First = 3, "message 412 of connection 0 came twice"
		c.Order.Violations, c.Order.ByType, c.Order.First = 2, map[string]int64{"PUBREC": 2}, "PUBREC 18 before PUBREC 17"
	}
	r.Partial, r.Trouble = true, "node n2 of B ended: exit status 2"
	all["incorrect"] = r

	one := two
	one.Arms, one.Name, one.Question = []Arm{after}, "sweep", ""
	all["one-arm"] = one.Result()

	quick := two
	quick.Blocks, quick.Length, quick.Control, quick.Unverified = 1, 300*time.Millisecond, false, true
	all["no-intervals"] = quick.Result()

	long := two
	long.Arms = []Arm{
		{
			Target:  "tcp://broker-one.staging.eu-central-1.messaging.example.com:1883,broker-two.staging.eu-central-1.messaging.example.com:1883",
			Version: "4.2.0-rc.1+build.20251128", Rate: func(int, int) float64 { return 91 },
		},
		{Target: "nats-server@v2.15.3?nodes=3&replicas=3", Version: "2.15.3", Rate: func(_, w int) float64 { return 90 * math.Pow(float64(w), 0.95) }},
	}
	long.Question = "Does the upgrade | the <new> one, with `journal` and a group commit that gathers what all connections wrote, pay for itself?"
	all["long-names"] = long.Result()

	many := two
	many.QoS, many.Conns, many.Windows, many.Blocks = []int{1, 2}, []int{1, 100}, []int{1, 20, 256}, 2
	all["many-points"] = many.Result()

	// A build against itself, at a single window.
	same := two
	same.Arms, same.Windows, same.Noise, same.Blocks = []Arm{after, after}, []int{20}, 0.02, 6
	same.Question = "Is a build the same as itself?"
	all["itself"] = same.Result()

	six := two
	six.Arms = nil
	for i := range 6 {
		six.Arms = append(six.Arms, Arm{
			Target: []string{"null", "reference?store=memory", "reference?store=staged", "nats-server@v2.15.3", "nats-server@v2.15.1", "nats-server@v2.14.10"}[i],
			Rate:   func(_, w int) float64 { return 30_000 / float64(i*i+1) * float64(w) / (float64(w) + 30/float64(i+1)) },
		})
	}
	six.Question, six.Control = "Six brokers on one machine: which one, and at which window?", false
	all["six-arms"] = six.Result()

	return all
}
