package scenarios

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Clients that carry the load of an arm.
const (
	ClientWire   = "wire"   // inflight's own
	ClientPaho   = "paho"   // Eclipse Paho's paho.golang, MQTT 5.0
	ClientPaho3  = "paho3"  // Eclipse Paho's paho.mqtt.golang, MQTT 3.1.1
	ClientMQTTjs = "mqttjs" // MQTT.js, in a process of Node.js
)

// Clients lists them; the first is the default.
func Clients() []string { return []string{ClientWire, ClientPaho, ClientPaho3, ClientMQTTjs} }

// ClientVersion is the version of MQTT that a client speaks where the scenario asks for version: two of them have one only.
func ClientVersion(client, version string) string {
	switch client {
	case ClientPaho:
		return MQTT5
	case ClientPaho3:
		return MQTT311
	}
	return version
}

// clientParameter is how a target string names the client. The load's it is, not the broker's: WithDefaults moves it to the arm.
const clientParameter = "client="

// splitClient takes the parameter out of a target string; clients has a value for each time that it was there.
func splitClient(target string) (rest string, clients []string) {
	base, query, ok := strings.Cut(target, "?")
	if !ok {
		return target, nil
	}
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		if name, ok := strings.CutPrefix(part, clientParameter); ok {
			clients = append(clients, name)
		} else {
			kept = append(kept, part)
		}
	}
	if len(kept) == 0 {
		return base, clients
	}
	return base + "?" + strings.Join(kept, "&"), clients
}

// settle gives the arm the client that its target string, the arm itself or the scenario names.
func (a *Arm) settle(otherwise string) {
	rest, clients := splitClient(a.Target)
	a.Target = rest
	if len(clients) > 0 {
		a.Client = cmp.Or(a.Client, clients[0])
	}
	a.Client = cmp.Or(a.Client, otherwise, ClientWire)
}

// Library is the client library that carries the arm's load; "" if it is the wire client.
func (a *Arm) Library() string {
	if a.Client == ClientWire {
		return ""
	}
	return a.Client
}

// clientProblem says what is wrong with the name of a client.
func clientProblem(name string) string {
	if slices.Contains(Clients(), name) {
		return ""
	}
	return fmt.Sprintf("unknown client %q%s (there are: %s)", name, DidYouMean(name, Clients()), strings.Join(Clients(), ", "))
}

// validateClients finds what the clients of the arms cannot do.
func (s *Scenario) validateClients(full *Scenario, add func(format string, args ...any)) {
	for i, arm := range s.Arms {
		_, clients := splitClient(arm.Target)
		if arm.Client != "" {
			clients = append(clients, arm.Client)
		}
		for j, name := range clients {
			switch {
			case name == "":
				add("arm %s: ?client= names no client: want one of %s", full.Arms[i].Name, strings.Join(Clients(), ", "))
			case j > 0 && name != clients[0]:
				add("arm %s is to be loaded by two clients, %s and %s: name one", full.Arms[i].Name, clients[0], name)
			}
		}
	}
	told := map[string]bool{}
	for _, arm := range full.Arms {
		switch text := clientProblem(arm.Client); {
		case text != "":
			add("arm %s: %s", arm.Name, text)
		case arm.Client == ClientWire || told[arm.Client]:
			continue
		case slices.Contains(full.QoS, 0):
			add("QoS 0 through %s: nothing is acknowledged, and a client library does not say when the broker has taken a message in; measure it at qos 1 and 2, or with client wire", arm.Client)
		case full.Version != ClientVersion(arm.Client, full.Version) && full.Version != MQTT311:
			add("client %s speaks MQTT %s, not %s (version)", arm.Client, ClientVersion(arm.Client, full.Version), full.Version)
		}
		told[arm.Client] = true
	}
}
