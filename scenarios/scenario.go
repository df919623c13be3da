package scenarios

import "time"

// Limits of a Scenario. They keep a typing error from becoming a week of load.
const (
	MaxWindow      = 65_535 // Packet Identifiers of one connection, section 2.3.1
	MaxConnections = 10_000
	MaxPayload     = 1 << 20
	MaxPasses      = 20
	MaxBlocks      = 100
	MaxNodes       = 9
	MaxDuration    = 10 * time.Minute // of one block run
)

// Scenario is one question: which arms, at which points, for how long. The zero value of a field means its default
// (see [Scenario.WithDefaults]).
type Scenario struct {
	Name        string
	Question    string
	Arms        []Arm
	QoS         []int // 0, 1, 2
	Windows     []int // exchanges outstanding per connection, 1 to 65,535
	Connections []int // publishing connections, spread over the nodes
	Payloads    []int // bytes
	Duration    time.Duration
	Warmup      time.Duration
	Control     time.Duration // of the QoS 0 control run; negative: no control
	Passes      int
	Blocks      int           // per pass and cell
	Nodes       int           // processes of a started broker, 1 or more
	Replicas    int           // stream replicas where the broker has them
	Verify      time.Duration // publishing time of a verification block; negative: none
	Drain       time.Duration // bound on waiting for its deliveries
	Quick       bool
}

// Arm is one broker under test; Name defaults to A, B, ...
type Arm struct {
	Name   string
	Target string // a target string, see package runner/target
}

// Point is one combination of the swept values.
type Point struct {
	QoS, Window, Connections, Payload int
}

// Points expands the sweep: QoS outermost, then connections, payload, and window innermost, each in the given order.
func (s *Scenario) Points() []Point {
	var points []Point
	for _, qos := range s.QoS {
		for _, connections := range s.Connections {
			for _, payload := range s.Payloads {
				for _, window := range s.Windows {
					points = append(points, Point{QoS: qos, Window: window, Connections: connections, Payload: payload})
				}
			}
		}
	}
	return points
}
