package check

import "inflight/runner/history"

// Controls are the same flows without any fault. A violation counts only if its control is green on the same broker, in
// the same run.
const (
	ControlConnect  = "CTL-CONNECT"
	ControlQoS0     = "CTL-QOS0"
	ControlQoS1     = "CTL-QOS1"
	ControlQoS2     = "CTL-QOS2"
	ControlResume   = "CTL-RESUME"
	ControlOutbound = "CTL-OUTBOUND"
)

// controlOf is the control of a row that names none, by its group.
var controlOf = map[string]string{
	"H": ControlConnect, "A1": ControlQoS0, "Q2I": ControlQoS0, "RES": ControlQoS2, "Q2O": ControlQoS0, "ORD": ControlQoS0, "E2E": ControlQoS2,
	"SUB": ControlQoS0, "BAD": ControlQoS0, "MISC": ControlQoS0, "INV": ControlConnect,
}

// ControlFor is the control of a rule.
func ControlFor(r *Rule) *Rule {
	id := r.Control
	if id == "" {
		id = controlOf[r.Group()]
	}
	for _, c := range controls {
		if c.ID == id {
			return c
		}
	}
	return controls[0]
}

var controls = []*Rule{
	{
		ID: ControlConnect, Title: "a client connects and is served", In: Both, Level: Must,
		Script: func(s *Script) { s.Connect("p"); s.Ping("p") }, Judge: None,
	},
	{
		ID: ControlQoS0, Title: "a message at QoS 0 arrives", In: Both, Level: Must,
		Script: func(s *Script) {
			s.Watch("w", 0, "t")
			s.Connect("p")
			s.Send("p", P0("=A"))
			s.Ping("p")
			if s.Caps.Delivers {
				s.Expect("w", Del("=A"))
			}
		}, Judge: None,
	},
	{
		ID: ControlQoS1, Title: "a message at QoS 1 is acknowledged and arrives", In: Both, Level: Must,
		Script: func(s *Script) { exchange(s, 1) }, Judge: arrives,
	},
	{
		ID: ControlQoS2, Title: "a message at QoS 2 is completed and arrives once", In: Both, Level: Must,
		Script: func(s *Script) { exchange(s, 2) }, Judge: arrives,
	},
	{
		ID: ControlResume, Title: "a kept session is resumed", In: Both, Level: Must,
		Script: func(s *Script) {
			s.Connect("p", Kept)
			s.Cut("p")
			s.Resume("p")
			s.Ping("p")
		},
		Judge: Present("p", 2, true),
	},
	{
		ID: ControlOutbound, Title: "a subscriber at QoS 2 completes what it gets", In: Both, Level: Must,
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			s.Exchange("p", P1(30_001, "=A"))
			s.Exchange("p", P2(30_002, "=B"))
			if s.Caps.Delivers {
				s.Fence("p", 2, "t", "w")
			}
		},
		Judge: func(j *J) {
			if j.Caps.Delivers {
				OnceAnyOrder("w", "=A", "=B")(j)
			}
		},
	},
}

func exchange(s *Script, qos byte) {
	s.Watch("w", 2, "t")
	s.Connect("p")
	s.Exchange("p", P(qos, 30_001, "=A"))
	if s.Caps.Delivers {
		s.Expect("w", Del("=A"))
	}
}

func arrives(j *J) {
	if j.Caps.Delivers {
		Once("w", "=A")(j)
	}
	NoneOf("p", history.PUBLISH)(j)
}
