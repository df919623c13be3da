package scenarios

import (
	"strings"
	"testing"
)

// The client of an arm is named by its target string, by itself or by the scenario, and is no part of the target afterwards.
func TestClientOfAnArm(t *testing.T) {
	for _, test := range []struct {
		why                     string
		arm                     Arm
		scenario                string
		target, client, client5 string // client5: the version of MQTT it has where 5 is asked for
	}{
		{"nobody says", Arm{Target: "null"}, "", "null", ClientWire, MQTT5},
		{"the target string", Arm{Target: "null?client=paho"}, "", "null", ClientPaho, MQTT5},
		{"among parameters", Arm{Target: "null?delay=1ms&client=paho3&port=1"}, "mqttjs", "null?delay=1ms&port=1", ClientPaho3, MQTT311},
		{"of an address", Arm{Target: "tcp://h:1?client=mqttjs"}, "", "tcp://h:1", ClientMQTTjs, MQTT5},
		{"the arm itself", Arm{Target: "null", Client: "paho"}, "paho3", "null", ClientPaho, MQTT5},
		{"the scenario", Arm{Target: "null"}, "paho3", "null", ClientPaho3, MQTT311},
		{"wire in a scenario of another", Arm{Target: "null?client=wire"}, "paho3", "null", ClientWire, MQTT5},
		{"another parameter that ends so", Arm{Target: "null?xclient=paho"}, "", "null?xclient=paho", ClientWire, MQTT5},
	} {
		s := Scenario{Arms: []Arm{test.arm}, Client: test.scenario}.WithDefaults()
		got := s.Arms[0]
		if got.Target != test.target || got.Client != test.client {
			t.Errorf("%s: target %q, client %q", test.why, got.Target, got.Client)
		}
		if v := ClientVersion(got.Client, MQTT5); v != test.client5 {
			t.Errorf("%s: MQTT %s, want %s", test.why, v, test.client5)
		}
		if again := s.WithDefaults(); again.Arms[0] != got {
			t.Errorf("%s: %+v the second time", test.why, again.Arms[0])
		}
		if library := got.Library(); (library == "") != (got.Client == ClientWire) {
			t.Errorf("%s: library %q", test.why, library)
		}
	}
}

func TestClientsThatCannotBe(t *testing.T) {
	for _, test := range []struct {
		why  string
		s    Scenario
		want string // "": none
	}{
		{"a known one", Scenario{Arms: []Arm{{Target: "null?client=paho"}}}, ""},
		{"the same one twice", Scenario{Arms: []Arm{{Target: "null?client=paho", Client: "paho"}}}, ""},
		{"two", Scenario{Arms: []Arm{{Target: "null?client=paho", Client: "wire"}}}, "arm A is to be loaded by two clients, paho and wire"},
		{"none", Scenario{Arms: []Arm{{Target: "null?client="}}}, "?client= names no client"},
		{"an unknown one", Scenario{Arms: []Arm{{Target: "null?client=gnat"}}}, `arm A: unknown client "gnat" (there are: wire, paho`},
		{"QoS 0", Scenario{Arms: []Arm{{Target: "null"}, {Target: "null?client=mqttjs"}}, QoS: []int{0, 1}}, "QoS 0 through mqttjs"},
		{"a version that it has not", Scenario{Arms: []Arm{{Target: "null?client=paho3"}}, Version: MQTT5}, "client paho3 speaks MQTT 3.1.1, not 5"},
		{"the default version says nothing", Scenario{Arms: []Arm{{Target: "null?client=paho"}}, Version: MQTT311}, ""},
	} {
		err := test.s.Validate()
		if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v, want %q alone", test.why, err, test.want)
		}
	}
	s, err := Load("f", []byte("arms:\n  - {target: null, client: paho3}\n  - null?client=mqttjs\nclient: paho\n"))
	if err != nil {
		t.Fatal(err)
	}
	if full := s.WithDefaults(); full.Arms[0].Client != ClientPaho3 || full.Arms[1].Client != ClientMQTTjs || full.Client != ClientPaho {
		t.Errorf("from a file: %+v", full.Arms)
	}
}
