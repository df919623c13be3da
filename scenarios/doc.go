// Package scenarios says what to measure: the Scenario type, strict loading of scenario files, the built-in scenarios
// (one YAML file for each question), and the descriptions of known brokers in targets/. It starts nothing and measures
// nothing. Flags and files make the same Scenario: both set values by [Scenario.Set].
//
// # Files
//
// A scenario file is YAML with these keys, all optional but arms:
//
//	name: mine              # letters, digits, - _ .
//	question: Is it faster?
//	arms:                   # one to sweep, two or more to compare with the first
//	  - nats-server@v2.14.10
//	  - {name: after, target: nats-server@v2.15.3}
//	qos: [1, 2]             # a value or a list: qos, window, connections, payload
//	window: [1, 10, 20, 256]
//	connections: 1
//	payload: 1KiB           # bytes; KiB and MiB, kB and MB; or a distribution: 64..4096 (each size as likely),
//	                        # lognormal:64..4096 (99 % of them between), 256*9+4096*1 (nine of ten are small)
//	duration: 500ms         # measured time of one block run
//	warmup: 100ms
//	control: 250ms          # or off
//	passes: 2
//	blocks: 5
//	nodes: 3
//	replicas: 3
//	verify: 500ms           # or off
//	drain: 20s
//	rate: [max, 10000, 1000..20000]   # messages per second on a fixed schedule, the last a ramp over the measured time;
//	                        # max: as fast as the window allows
//	find-max: off           # or p99<20ms: search for the highest rate at which that holds
//	messages: 100000        # of each run, instead of the duration
//	topics: 1               # of each connection
//	version: 3.1.1          # of MQTT, or 5
//	client: wire            # what publishes, or paho, paho3, mqttjs; also of an arm, or ?client= in its target
//	pin: off                # or auto, or CPU sets: the generator's, then the slots', as 0/1-3
//	seed: 1                 # of the order in which the sizes of a distribution come
//	subscribers: 0          # during the load, each to everything
//	subscriber-qos: same    # or 0, 1, 2
//	subscriber-delay: off   # that each of them takes for a message
//	subscriber-session: clean   # or kept
//	quick: {blocks: 2, duration: 250ms}   # what --quick changes
//	gate:                                 # rules of package scenarios/rule
//	  - throughput >= 1x effect 20%
//	  - p99 <= 1.5x at qos=2 window=20,256
//
// Every key of the last group is also a flag of the same name. Anchors, aliases, tags and several documents are refused.
package scenarios
