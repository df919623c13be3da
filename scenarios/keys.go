package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Key describes one setting of a Scenario. A key of a scenario file and the flag of the same name are one Key, which is
// why they make the same Scenario.
type Key struct {
	Name string
	List bool   // several values make a sweep
	Span bool   // values are durations
	Word bool   // values are words
	Help string // one line with the unit
}

// Keys lists the settings in the order in which help shows them. The name, the question, the arms and the quick section
// of a file are no settings.
func Keys() []Key {
	var list []Key
	for _, k := range keys() {
		list = append(list, k.Key)
	}
	return list
}

// Set gives the setting key its values, each one as text: "256", "1KiB", "800ms". Every problem is reported, and a value
// with a problem is not stored.
func (s *Scenario) Set(name string, values ...string) error {
	k, err := lookUp(name)
	if err != nil {
		return err
	}
	if len(values) == 0 {
		return fmt.Errorf("%s has no value", name)
	}
	var problems []error
	for i, value := range values {
		problems = append(problems, k.set(s, i, value))
	}
	return errors.Join(problems...)
}

// Get returns the values of the setting key as text that Set takes, separated by commas. It is empty for an unknown key.
func (s *Scenario) Get(name string) string {
	k, err := lookUp(name)
	if err != nil {
		return ""
	}
	return k.get(s)
}

// key is a Key with its code.
type key struct {
	Key
	set   func(s *Scenario, i int, value string) error // stores value number i; number 0 replaces what was there
	get   func(s *Scenario) string
	check func(s *Scenario) []string // problems of what is stored, defaults filled in
}

func keys() []key {
	return []key{
		intList("qos", "Quality of Service of the publications: 0, 1, 2",
			func(s *Scenario) *[]int { return &s.QoS }, 0, 2, "MQTT has QoS 0, 1 and 2"),
		intList("window", "exchanges in flight per connection, 1 to 65535",
			func(s *Scenario) *[]int { return &s.Windows }, 1, MaxWindow,
			"a connection has 65,535 Packet Identifiers, and a window needs at least 1"),
		intList("connections", "publishing connections",
			func(s *Scenario) *[]int { return &s.Connections }, 1, MaxConnections,
			"from 1 to 10,000 publishing connections"),
		payloads(),
		span("duration", "measured time of one block run, as 800ms or 2s",
			func(s *Scenario) *time.Duration { return &s.Duration }, time.Millisecond, MaxDuration, false),
		span("warmup", "load before it that is not counted",
			func(s *Scenario) *time.Duration { return &s.Warmup }, time.Millisecond, MaxDuration, false),
		span("control", "measured time of one QoS 0 control run; 0 or off: none",
			func(s *Scenario) *time.Duration { return &s.Control }, time.Millisecond, MaxDuration, true),
		single("passes", "passes; the arms change slots between them",
			func(s *Scenario) *int { return &s.Passes }, 1, MaxPasses, "one pass per assignment of arms to slots"),
		single("blocks", "blocks per pass and cell; a block is A B B A, or A B C C B A",
			func(s *Scenario) *int { return &s.Blocks }, 1, MaxBlocks, "fewer than 6 in all give a wide interval"),
		single("nodes", "broker processes of a started target",
			func(s *Scenario) *int { return &s.Nodes }, 1, MaxNodes, "all of them share this machine"),
		single("replicas", "stream replicas; as many as nodes, at most 3, unless set",
			func(s *Scenario) *int { return &s.Replicas }, 1, MaxReplicas, "a stream has at most 5 replicas"),
		span("verify", "publishing time of a cell's exactly-once check; 0 or off: none",
			func(s *Scenario) *time.Duration { return &s.Verify }, time.Millisecond, MaxDuration, true),
		span("drain", "bound on waiting for deliveries when nothing more comes",
			func(s *Scenario) *time.Duration { return &s.Drain }, time.Millisecond, MaxDuration, false),
		rates(),
		findMax(),
		single("messages", "messages of each run, for as long as it takes, instead of its duration; 0: the duration",
			func(s *Scenario) *int { return &s.Messages }, 0, MaxMessages, "all connections of a run together"),
		single("topics", "topics of each publishing connection, in turns",
			func(s *Scenario) *int { return &s.Topics }, 1, MaxTopics, "each has its own order"),
		single("subscribers", "subscribers during the load, each to everything; 0: none",
			func(s *Scenario) *int { return &s.Subscribers }, 0, MaxSubscribers, "each is a connection of the load generator"),
		subscriberQoS(),
		span("subscriber-delay", "time that each of them takes for a message, acknowledging it afterwards; 0 or off: none",
			func(s *Scenario) *time.Duration { return &s.SubscriberDelay }, time.Microsecond, MaxDelay, true),
		choice("subscriber-session", "session of the subscribers", func(s *Scenario) *string { return &s.SubscriberSession },
			SessionClean, SessionKept),
		choice("version", "MQTT of the load", func(s *Scenario) *string { return &s.Version }, MQTT311, MQTT5),
		pinKey(),
		single("seed", "of the order in which the sizes of a distribution come, the same in every run",
			func(s *Scenario) *int { return &s.Seed }, 1, math.MaxInt32, "any number makes an order of its own"),
		choice("client", "what publishes, for arms that do not say so themselves with ?client=NAME", func(s *Scenario) *string { return &s.Client },
			Clients()...),
	}
}

// closedLoop is how a rate is written that is none.
const closedLoop = "max"

// rates is the list of rates: whole numbers, max for the closed loop, or ramps.
func rates() key {
	k := intList("rate", "messages per second of a run on a fixed schedule (open loop), 1000..20000 for a ramp; max: as fast as the window allows",
		func(s *Scenario) *[]int { return &s.Rates }, 0, MaxRate, "messages per second, all connections together")
	constant := k
	k.set = func(s *Scenario, i int, value string) error {
		if i == 0 {
			s.Rates, s.Ramps = nil, nil
		}
		switch {
		case value == closedLoop:
			value = "0"
		case value == "0":
			return errors.New("rate 0 sends nothing: write max for as fast as the window allows")
		case strings.Contains(value, rangeMark):
			r, err := parseRamp(value)
			if err == nil && slices.Contains(s.Ramps, r) {
				err = fmt.Errorf("rate %v is listed twice", r)
			}
			if err == nil {
				s.Ramps = append(s.Ramps, r)
			}
			return err
		}
		return constant.set(s, max(i, 1), value)
	}
	k.get = func(s *Scenario) string {
		var words []string
		for _, n := range s.Rates {
			if n == 0 {
				words = append(words, closedLoop)
			} else {
				words = append(words, strconv.Itoa(n))
			}
		}
		for _, r := range s.Ramps {
			words = append(words, r.String())
		}
		return strings.Join(words, ",")
	}
	k.check = func(s *Scenario) (problems []string) {
		if len(s.Rates) > 0 || len(s.Ramps) == 0 {
			problems = constant.check(s)
		}
		for i, r := range s.Ramps {
			if err := r.validate(); err != nil {
				problems = append(problems, err.Error())
			} else if slices.Contains(s.Ramps[:i], r) {
				problems = append(problems, fmt.Sprintf("rate %v is listed twice", r))
			}
		}
		return problems
	}
	return k
}

const payloadWhy = "at least 32 B, for what tells messages apart, and at most 1 MiB"

// payloads is the list of payloads: single sizes, or distributions.
func payloads() key {
	k := intList("payload", "payload in bytes, also as 1KiB; or a distribution: 64..4096, lognormal:64..4096, 256*9+4096*1",
		func(s *Scenario) *[]int { return &s.Payloads }, MinPayload, MaxPayload, payloadWhy)
	single := k
	k.set = func(s *Scenario, i int, value string) error {
		if i == 0 {
			s.Payloads, s.Sizes = nil, nil
		}
		if !isSizes(value) {
			return single.set(s, max(i, 1), value)
		}
		of, err := parseSizes(value)
		if err != nil {
			return err
		}
		text := of.String()
		if slices.Contains(s.Sizes, text) {
			return fmt.Errorf("payload %s is listed twice", text)
		}
		s.Sizes = append(s.Sizes, text)
		return nil
	}
	k.get = func(s *Scenario) string {
		words := slices.Clone(s.Sizes)
		if len(s.Payloads) > 0 {
			words = append([]string{single.get(s)}, words...)
		}
		return strings.Join(words, ",")
	}
	k.check = func(s *Scenario) (problems []string) {
		if len(s.Payloads) > 0 || len(s.Sizes) == 0 {
			problems = single.check(s)
		}
		for i, text := range s.Sizes {
			if of, err := parseSizes(text); err != nil {
				problems = append(problems, strings.Split(err.Error(), "\n")...)
			} else if of.String() != text || slices.Contains(s.Sizes[:i], text) {
				problems = append(problems, fmt.Sprintf("payload %s is listed twice, or is not written as %v", text, of))
			}
		}
		return problems
	}
	return k
}

// sameQoS is how the QoS of subscriptions is written that is that of the publications.
const sameQoS = "same"

func subscriberQoS() key {
	k := single("subscriber-qos", "QoS of their subscriptions; same: that of the publications",
		func(s *Scenario) *int {
			if s.SubscriberQoS == nil {
				s.SubscriberQoS = new(int)
			}
			return s.SubscriberQoS
		}, 0, 2, "MQTT has QoS 0, 1 and 2")
	set, check := k.set, k.check
	k.set = func(s *Scenario, i int, value string) error {
		if i == 0 && value == sameQoS {
			s.SubscriberQoS = nil
			return nil
		}
		s.SubscriberQoS = nil // not the one that a copy of the scenario shares
		err := set(s, i, value)
		if err != nil {
			s.SubscriberQoS = nil
		}
		return err
	}
	k.get = func(s *Scenario) string {
		if s.SubscriberQoS == nil {
			return sameQoS
		}
		return strconv.Itoa(*s.SubscriberQoS)
	}
	k.check = func(s *Scenario) []string {
		if s.SubscriberQoS == nil {
			return nil
		}
		return check(s)
	}
	return k
}

// choice is one of some words; the first is the default.
func choice(name, help string, field func(*Scenario) *string, words ...string) key {
	last := len(words) - 1
	problem := func(value string) string {
		if value == "" || slices.Contains(words, value) {
			return ""
		}
		return fmt.Sprintf("%s %q is none of %s%s", name, value, strings.Join(words, ", "), DidYouMean(value, words))
	}
	return key{
		Key: Key{Name: name, Word: true, Help: help + ": " + strings.Join(words[:last], ", ") + " or " + words[last]},
		set: func(s *Scenario, i int, value string) error {
			if i > 0 {
				return fmt.Errorf("%s takes one value, not a list", name)
			}
			if text := problem(value); text != "" || value == "" {
				return errors.New(cmp.Or(text, name+" is empty"))
			}
			*field(s) = value
			return nil
		},
		get: func(s *Scenario) string { return cmp.Or(*field(s), words[0]) },
		check: func(s *Scenario) []string {
			if text := problem(*field(s)); text != "" {
				return []string{text}
			}
			return nil
		},
	}
}

// MinPayload leaves room for what identifies a message in the ledger: run, connection, sequence number.
const MinPayload = 32

func lookUp(name string) (key, error) {
	var names []string
	for _, k := range keys() {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return key{}, fmt.Errorf("unknown setting %q%s", name, DidYouMean(name, names))
}

func intList(name, help string, field func(*Scenario) *[]int, low, high int, why string) key {
	return key{
		Key: Key{Name: name, List: true, Help: help},
		set: func(s *Scenario, i int, value string) error {
			list := field(s)
			if i == 0 {
				*list = nil
			}
			n, err := parseCount(name, value)
			if err != nil {
				return err
			}
			if text := outside(name, n, low, high, why); text != "" {
				return errors.New(text)
			}
			if slices.Contains(*list, n) {
				return fmt.Errorf("%s %d is listed twice", name, n)
			}
			*list = append(*list, n)
			return nil
		},
		get: func(s *Scenario) string {
			var words []string
			for _, n := range *field(s) {
				words = append(words, strconv.Itoa(n))
			}
			return strings.Join(words, ",")
		},
		check: func(s *Scenario) (problems []string) {
			list := *field(s)
			for i, n := range list {
				if text := outside(name, n, low, high, why); text != "" {
					problems = append(problems, text)
				} else if slices.Contains(list[:i], n) {
					problems = append(problems, fmt.Sprintf("%s %d is listed twice", name, n))
				}
			}
			if len(list) == 0 {
				problems = append(problems, fmt.Sprintf("%s has no value", name))
			}
			return problems
		},
	}
}

func single(name, help string, field func(*Scenario) *int, low, high int, why string) key {
	return key{
		Key: Key{Name: name, Help: help},
		set: func(s *Scenario, i int, value string) error {
			if i > 0 {
				return fmt.Errorf("%s takes one value, not a list", name)
			}
			n, err := parseCount(name, value)
			if err != nil {
				return err
			}
			if text := outside(name, n, low, high, why); text != "" {
				return errors.New(text)
			}
			*field(s) = n
			return nil
		},
		get: func(s *Scenario) string { return strconv.Itoa(*field(s)) },
		check: func(s *Scenario) []string {
			if text := outside(name, *field(s), low, high, why); text != "" {
				return []string{text}
			}
			return nil
		},
	}
}

// span is a duration. An optional one can be switched off, which is stored as None because zero means the default.
func span(name, help string, field func(*Scenario) *time.Duration, low, high time.Duration, optional bool) key {
	problem := func(d time.Duration) string {
		switch {
		case optional && d <= 0, low <= d && d <= high:
			return ""
		case optional:
			return fmt.Sprintf("%s %v is out of range: %v to %v, or off", name, d, low, high)
		default:
			return fmt.Sprintf("%s %v is out of range: %v to %v", name, d, low, high)
		}
	}
	return key{
		Key: Key{Name: name, Span: true, Help: help},
		set: func(s *Scenario, i int, value string) error {
			if i > 0 {
				return fmt.Errorf("%s takes one value, not a list", name)
			}
			d, err := time.ParseDuration(value)
			switch {
			case optional && (value == "off" || err == nil && d == 0):
				*field(s) = None
				return nil
			case err != nil:
				return fmt.Errorf("%s %q is not a duration: write it with a unit, as 800ms or 2s", name, value)
			case d < 0:
				return fmt.Errorf("%s %v is negative", name, d)
			}
			if text := problem(d); text != "" {
				return errors.New(text)
			}
			*field(s) = d
			return nil
		},
		get: func(s *Scenario) string {
			if d := *field(s); d > 0 || !optional {
				return d.String()
			}
			return "off"
		},
		check: func(s *Scenario) []string {
			if text := problem(*field(s)); text != "" {
				return []string{text}
			}
			return nil
		},
	}
}

// parseCount reads a whole number. Sizes alone take a unit: KiB and MiB are binary, kB and MB decimal.
func parseCount(name, value string) (int, error) {
	digits, unit := value, 1
	if name == "payload" {
		for _, u := range []struct {
			suffix string
			bytes  int
		}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"kB", 1e3}, {"MB", 1e6}, {"B", 1}} {
			if before, ok := strings.CutSuffix(value, u.suffix); ok {
				digits, unit = strings.TrimSpace(before), u.bytes
				break
			}
		}
	}
	n, err := strconv.Atoi(digits)
	switch {
	case errors.Is(err, strconv.ErrRange), unit > 1 && (n > MaxPayload || n < -MaxPayload): // the product may not overflow
		return 0, fmt.Errorf("%s %s is out of range", name, value)
	case err != nil && name == "payload":
		return 0, fmt.Errorf("%s %q is not a size: write bytes, or 1KiB, 64KiB, 1MiB", name, value)
	case err != nil:
		return 0, fmt.Errorf("%s %q is not a whole number", name, value)
	}
	return n * unit, nil
}

func outside(name string, n, low, high int, why string) string {
	if low <= n && n <= high {
		return ""
	}
	return fmt.Sprintf("%s %d is out of range, %d to %d: %s", name, n, low, high, why)
}
