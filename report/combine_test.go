package report

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inflight/report/internal/synth"
	"inflight/report/stat"
	"inflight/runner/result"
)

// dirs writes fixtures as the directories of runs.
func dirs(t *testing.T, edit func(name string, r *result.Result), names ...string) (out []string) {
	t.Helper()
	for _, name := range names {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		r := synth.Fixtures()[name]
		if edit != nil {
			edit(name, r)
		}
		if err := result.Write(dir, r); err != nil {
			t.Fatal(err)
		}
		out = append(out, dir)
	}
	return out
}

func TestSideBySide(t *testing.T) {
	if testing.Short() || synth.Race {
		t.Skip("draws large pictures; run without -short and -race, as .ci/run does as well")
	}
	t.Parallel()
	together, err := SideBySide(dirs(t, func(name string, r *result.Result) {
		if name == "one-arm" {
			r.Environment.Cores = 64
			r.Arms[0].Name = "x"
			for i := range r.Cells {
				r.Cells[i].Arm = "x"
			}
		}
	}, "two-arms", "one-arm", "incorrect"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, a := range together.Result.Arms {
		names = append(names, a.Name)
	}
	if got := strings.Join(names, " "); got != "1A 1B x 3A 3B" {
		t.Errorf("arms %s; want a number only before a name that occurs twice", got)
	}
	stat.Judge(together.Result)
	if together.Result.Comparisons != nil || together.Result.Control != nil {
		t.Error("runs that are not paired are compared")
	}
	out := t.TempDir()
	if err := together.WriteDir(out); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(out, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`data-label="Arm">3A</td>`, "<s>20,556</s>", "are not paired", "run 2 (one-arm) was made on another machine than run 1 (cores 2, here 64)", "the machines differ, and one of the runs has no QoS 0 control", "no more than the runs differ at QoS 0"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	var table bytes.Buffer
	if err := Table(&table, together.Result, 100, false); err != nil || strings.Contains(table.String(), "over 1A") || !strings.Contains(table.String(), "~~20,556~~") {
		t.Errorf("table, %v:\n%s", err, table.String())
	}
	// It is a result like others, and can be rendered again.
	if again, err := result.Read(out); err != nil || !again.SideBySide || len(again.Arms) != 5 {
		t.Errorf("read again: %v", err)
	}
}

func TestSideBySideSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := dirs(t, nil, "two-arms", "six-arms", "incorrect", "itself", "one-arm")
	for _, test := range []struct {
		dirs []string
		want string
	}{
		{good[:1], "at least two directories"},
		{[]string{good[0], good[0]}, "named twice"},
		{[]string{good[0], "gone"}, "the directory of a run?"},
		{[]string{good[1], good[0], good[2], good[3], good[4]}, "13 arms in 5 runs: at most 12 side by side"},
	} {
		if _, err := SideBySide(test.dirs); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.dirs, err, test.want)
		}
	}
}

func TestCurvesOfBadLogs(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad.hlog"), []byte("#[x]\n\"Tag=ack_service,1,2,3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"gone.hlog": "copy the run's directory as a whole", "../../etc/passwd": "not below the run's directory", "bad.hlog": "from a few percentiles only"} {
		r := synth.Fixtures()["one-arm"]
		r.Cells[0].Histograms = name
		if _, trouble := curvesOf(dir, r); !strings.Contains(trouble, want) {
			t.Errorf("%s: %q, want %q in it", name, trouble, want)
		}
	}
}
