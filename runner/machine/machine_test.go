package machine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inflight/runner/result"
)

func TestKey(t *testing.T) {
	a := result.Environment{CPU: "x", Cores: 2, Kernel: "6.1", OS: "linux", Arch: "amd64", GOMAXPROCS: 2}
	same, b := a, a
	b.GOMAXPROCS = 1
	if Key(&a) != Key(&same) || Key(&a) == Key(&b) || len(Key(&a)) != 12 {
		t.Errorf("keys %s and %s", Key(&a), Key(&b))
	}
}

func TestClockAndLoopback(t *testing.T) {
	if c := Clock(); c <= 0 || c > time.Millisecond {
		t.Errorf("the clock's steps are %v", c)
	}
	h, err := Loopback(t.Context())
	if err != nil || h.TotalCount() != roundTrips || h.ValueAtPercentile(50) < 500 {
		t.Errorf("loopback: %v, %v", h, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Loopback(ctx); err == nil {
		t.Error("a context that has ended is no error")
	}
}

func TestStoreAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	if c, err := Load(dir, "k"); c != nil || err != nil {
		t.Errorf("nothing stored: %v, %v", c, err)
	}
	file, err := Store(dir, &result.Calibration{Machine: "k", Tool: "x", Ceilings: []result.Ceiling{{QoS: 2, ThroughputPerS: 7}}})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := Load(dir, "k"); err != nil || c.Ceilings[0].ThroughputPerS != 7 {
		t.Errorf("stored: %+v, %v", c, err)
	}
	for _, bad := range []string{"{", `{"machine": "another"}`} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := Load(dir, "k"); c != nil || err == nil || !strings.Contains(err.Error(), "inflight calibrate") {
			t.Errorf("%s: %v, %v", bad, c, err)
		}
	}
}

func TestJudge(t *testing.T) {
	good := facts{files: 1 << 20, load: 0.1, cores: 4, governor: "performance", ports: 28_232, disk: []disk{{"/x", 1 << 40}}}
	bad := facts{files: 256, load: 3, cores: 1, governor: "powersave", ports: 100, disk: []disk{{"/x", 1 << 20}, {"/y", 2 << 30}}}
	unknown := facts{files: -1, load: -1, cores: 4, ports: -1}
	for _, test := range []struct {
		name string
		f    facts
		want string
	}{
		{"good", good, "open files ok, other load ok, processor governor ok, cores ok, local ports ok, free disk ok"},
		{"bad", bad, "open files fail, other load warn, processor governor warn, cores warn, local ports warn, free disk fail, free disk warn"},
		{"unknown", unknown, "processor governor ok, cores ok"},
	} {
		var got []string
		for _, f := range test.f.judge() {
			got = append(got, f.Name+" "+f.Status)
			if (f.Status == OK) != (f.Hint == "") {
				t.Errorf("%s: %+v", test.name, f)
			}
		}
		if text := strings.Join(got, ", "); text != test.want {
			t.Errorf("%s: %s, want %s", test.name, text, test.want)
		}
	}
	now := time.Now()
	if f := calibrated(nil, now); f.Status != Warn {
		t.Errorf("%+v", f)
	}
	if f := calibrated(&result.Calibration{Started: now.Add(-2 * oldAfter)}, now); f.Status != Warn {
		t.Errorf("%+v", f)
	}
	if f := clock(time.Millisecond); f.Status != Warn {
		t.Errorf("%+v", f)
	}
	if f := (&wanted{names: []string{"no-such-program"}, purpose: "to test", install: "nothing"}).look(t.Context()); f.Status != Warn || f.Text != "not found; it is for test" {
		t.Errorf("%+v", f)
	}
	names := map[string]bool{}
	for _, f := range Check(t.Context(), []string{t.TempDir()}, nil, now) {
		names[f.Name] = true
	}
	for _, want := range []string{"open files", "free disk", "clock", "loopback", "calibration", "go"} {
		if !names[want] {
			t.Errorf("no check of %s: %v", want, names)
		}
	}
}
