package scenarios

import (
	"reflect"
	"strings"
	"testing"
)

func TestParsePins(t *testing.T) {
	good := map[string]Pins{
		"0/1":           {Generator: []int{0}, Slots: [][]int{{1}}},
		"0-1/2-3/4-5":   {Generator: []int{0, 1}, Slots: [][]int{{2, 3}, {4, 5}}},
		"4,0/3,1-2,2":   {Generator: []int{0, 4}, Slots: [][]int{{1, 2, 3}}},
		"0/0":           {Generator: []int{0}, Slots: [][]int{{0}}},
		"1022-1023/0-1": {Generator: []int{1022, 1023}, Slots: [][]int{{0, 1}}},
	}
	for text, want := range good {
		if got, err := ParsePins(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, c := range []struct{ text, want, why string }{
		{"0", "the generator's first", "no slots"},
		{"on", `"on" is no CPU`, "a word"},
		{"0/", `"" is no CPU`, "an empty set"},
		{"0/2-1", `"2-1" is no CPU and no range`, "backwards"},
		{"0/-1", `"-1" is no CPU`, "negative"},
		{"0/1-1024", "CPU 1024 is out of range", "beyond what the kernel has, and a set of any size"},
		{"0/1-9999999999999999999", "is no CPU", "overflows"},
	} {
		if _, err := ParsePins(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s (%s)", c.text, err, c.want, c.why)
		}
	}
}

func TestPinSetting(t *testing.T) {
	two := Scenario{Arms: []Arm{{Target: "a"}, {Target: "b"}}}
	for value, want := range map[string]string{
		"auto": "", "off": "", "0/1": "", "0/1/2": "",
		"0/1/2/3": "3 CPU sets for 2 slots",
	} {
		s := two
		if err := s.Set("pin", value); err != nil || s.Get("pin") != value {
			t.Errorf("%s: %v, %s", value, err, s.Get("pin"))
		}
		err := s.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
	s := two
	if s.Set("pin", "") == nil || s.Set("pin", "0", "1") == nil || s.Set("pin", "yes") == nil || s.Pin != "" {
		t.Errorf("a bad value was stored: %q", s.Pin)
	}
	if got := s.WithDefaults().Pin; got != PinOff {
		t.Errorf("default %q", got)
	}
}
