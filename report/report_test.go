package report

import (
	"bytes"
	"encoding/csv"
	"flag"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"inflight/report/gate"
	"inflight/report/internal/synth"
	"inflight/runner/result"
)

var update = flag.Bool("update", false, "rewrite the golden files under testdata/report; look at them before committing")

const golden = "../testdata/report"

// want compares got with a golden file, or rewrites it.
func want(t *testing.T, path string, got []byte) {
	t.Helper()
	path = filepath.Join(golden, path)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	expected, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run go test ./report -update", err)
	}
	if diff := cmp.Diff(string(expected), string(got)); diff != "" {
		t.Errorf("%s differs (-golden +got); if that is meant, run go test ./report -update and look at it:\n%.2000s", path, diff)
	}
}

// TestGoldenDirectories makes the reports of whole run directories as `inflight report` does.
func TestGoldenDirectories(t *testing.T) {
	for _, name := range []string{"two-arms", "incorrect"} {
		t.Run(name, func(t *testing.T) {
			if (testing.Short() || synth.Race) && name != "two-arms" {
				t.Skip("one directory is enough for a short test and for the race detector; run without both, as .ci/run does as well")
			}
			source := filepath.Join(golden, name)
			if *update {
				data, err := result.Encode(judged(synth.Fixtures()[name]))
				if err != nil {
					t.Fatal(err)
				}
				want(t, filepath.Join(name, result.FileName), data)
			}
			dir := t.TempDir()
			data, err := os.ReadFile(filepath.Join(source, result.FileName))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, result.FileName), data, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := WriteDir(dir); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"report.md", "report.html", "throughput.svg", "p99.svg"} {
				got, err := os.ReadFile(filepath.Join(dir, file))
				if err != nil {
					t.Fatal(err)
				}
				want(t, filepath.Join(name, file), got)
			}
			for _, file := range []string{"throughput.png", "p99.png"} {
				got, err := os.ReadFile(filepath.Join(dir, file))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := png.Decode(bytes.NewReader(got)); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
			if after, err := os.ReadFile(filepath.Join(dir, result.FileName)); err != nil || !bytes.Equal(after, data) {
				t.Errorf("result.json was touched: %v", err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 7 {
				t.Errorf("the directory holds %v, %v; want result.json and six reports", entries, err)
			}
		})
	}
}

func TestGoldenTables(t *testing.T) {
	for name, r := range synth.Fixtures() {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Table(&b, r, 80, false); err != nil {
				t.Fatal(err)
			}
			want(t, filepath.Join(name, "table.txt"), b.Bytes())
			for _, line := range strings.Split(b.String(), "\n") {
				// Only a word that cannot be broken may be longer: a target that is to be copied.
				if utf8.RuneCountInString(line) > 80 && len(strings.Fields(line)) > 3 {
					t.Errorf("wider than 80: %q", line)
				}
			}
		})
	}
}

func TestGoldenMarkdown(t *testing.T) {
	fixtures := synth.Fixtures()
	for _, name := range []string{"one-arm", "no-intervals", "long-names"} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Markdown(&b, fixtures[name]); err != nil {
				t.Fatal(err)
			}
			want(t, filepath.Join(name, "report.md"), b.Bytes())
		})
	}
}

func TestTableStrikesOut(t *testing.T) {
	r := synth.Fixtures()["incorrect"]
	var plain, color bytes.Buffer
	if err := Table(&plain, r, 80, false); err != nil {
		t.Fatal(err)
	}
	if err := Table(&color, r, 80, true); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(plain.String(), "~~20,556~~") || strings.Contains(plain.String(), "\x1b") || !strings.Contains(plain.String(), "INCORRECT") {
		t.Errorf("without colour:\n%s", plain.String())
	}
	if !strings.Contains(color.String(), "\x1b[9m20,556\x1b[29m") || strings.Contains(color.String(), "~~") || !strings.Contains(color.String(), "INCORRECT") {
		t.Errorf("with colour:\n%q", color.String())
	}
	// The columns line up once the escape sequences are gone.
	shown := strings.NewReplacer("\x1b[9m", "", "\x1b[29m", "").Replace(color.String())
	var at []int
	for _, line := range strings.Split(shown, "\n")[3:8] {
		at = append(at, strings.LastIndex(line, "|"))
	}
	for _, i := range at {
		if i != at[0] || i < 0 {
			t.Errorf("the last separator is at %v:\n%s", at, shown)
			break
		}
	}
}

func TestTableWidths(t *testing.T) {
	r := synth.Fixtures()["two-arms"]
	tests := []struct {
		name  string
		width int
		has   []string
		not   []string
	}{
		{"wide enough for everything", 100, []string{" | ", "[21.7, 24.5]"}, nil},
		{"none given is 80", 0, []string{" | ", "[21.7, 24.5]"}, nil},
		{"separators go first", 76, []string{"[21.7, 24.5]"}, []string{" | "}},
		{"then the interval", 64, []string{"23.1"}, []string{" | ", "[21.7, 24.5]"}},
		{"absurdly narrow", 5, []string{"23.1"}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Table(&b, r, test.width, false); err != nil {
				t.Fatal(err)
			}
			for _, s := range test.has {
				if !strings.Contains(b.String(), s) {
					t.Errorf("no %q in\n%s", s, b.String())
				}
			}
			for _, s := range test.not {
				if strings.Contains(b.String(), s) {
					t.Errorf("%q in\n%s", s, b.String())
				}
			}
		})
	}
}

func TestTableIsSafeForATerminal(t *testing.T) {
	r := synth.Fixtures()["two-arms"]
	r.Arms[0].Target = "tcp://\x1b]0;owned\x07host"
	r.Arms[1].Version = "1.0\r\nB = forged"
	r.Scenario.Question = "\x1b[2J?"
	var b bytes.Buffer
	if err := Table(&b, r, 80, false); err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(b.String(), func(c rune) bool { return c != '\n' && c < ' ' || c == 0x7f }); i >= 0 {
		t.Errorf("a control character at %d: %q", i, b.String())
	}
	if strings.Contains(b.String(), "\nB = forged") {
		t.Errorf("a line was forged:\n%s", b.String())
	}
}

func TestCSV(t *testing.T) {
	r := synth.Fixtures()["incorrect"]
	r.Cells[0].RSSPeak = nil
	var b bytes.Buffer
	if err := CSV(&b, r); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1+len(r.Cells) {
		t.Fatalf("%d rows, want a head and %d cells, the controls included", len(rows), len(r.Cells))
	}
	value := func(row int, name string) string {
		for i, n := range rows[0] {
			if n == name {
				return rows[row][i]
			}
		}
		t.Fatalf("no column %q", name)
		return ""
	}
	if got := value(1, "rss_peak_bytes"); got != "" {
		t.Errorf("what was not measured is %q, want nothing", got)
	}
	if got := value(1, "target"); got != r.Arms[0].Target {
		t.Errorf("target %q", got)
	}
	incorrect := 0
	for i := range r.Cells {
		if value(1+i, "incorrect") == "true" {
			incorrect++
		}
	}
	if incorrect != 2 {
		t.Errorf("%d incorrect cells, want 2", incorrect)
	}
}

func TestJSONIsAResult(t *testing.T) {
	r := synth.Fixtures()["two-arms"]
	var b bytes.Buffer
	if err := JSON(&b, r); err != nil {
		t.Fatal(err)
	}
	got, err := result.Decode(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Comparisons) != 8 || r.Comparisons != nil {
		t.Errorf("%d comparisons, want 8; %d in the result that was given, want it untouched", len(got.Comparisons), len(r.Comparisons))
	}
}

func TestWriteDirSaysWhatIsWrong(t *testing.T) {
	tests := []struct {
		name, want string
		prepare    func(t *testing.T, dir string) string
	}{
		{"no directory", "the directory of a run?", func(_ *testing.T, dir string) string { return filepath.Join(dir, "gone") }},
		{"no result in it", "the directory of a run?", func(_ *testing.T, dir string) string { return dir }},
		{"a foreign file", "is not an inflight result", func(t *testing.T, dir string) string {
			if err := os.WriteFile(filepath.Join(dir, result.FileName), []byte(`{"schema": "k6"}`), 0o644); err != nil {
				t.Fatal(err)
			}
			return dir
		}},
		{"no permission to write", "copy the directory to where you may write", func(t *testing.T, dir string) string {
			if os.Geteuid() == 0 || runtime.GOOS == "windows" {
				t.Skip("root may write everywhere; run as another user, as .ci/run does")
			}
			if err := result.Write(dir, &result.Result{}); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, 0o500); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.Chmod(dir, 0o700) })
			return dir
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := WriteDir(test.prepare(t, t.TempDir()))
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("WriteDir: %v; want one line with %q", err, test.want)
			}
		})
	}
}

func TestEmptyResultRenders(t *testing.T) {
	r := &result.Result{Partial: true, Trouble: "arm A: not ready after 30s", Arms: []result.Arm{{Name: "A", Target: "tcp://x:1"}, {Name: "B", Target: "null"}}}
	if _, err := Render(r); err != nil {
		t.Error(err)
	}
	var b bytes.Buffer
	if err := Table(&b, r, 80, false); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"Partial result: arm A: not ready after 30s.", "Nothing was measured."} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// testdata/report/first-schema is a result as the first inflight wrote it: none of the fields that came later. It is read,
// judged and rendered like a new one; a newer schema than ours is refused with a hint.
func TestResultsOfTheFirstInflightAreRead(t *testing.T) {
	r, err := result.Read(filepath.Join(golden, "first-schema"))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Table(&b, r, 100, false); err != nil || !strings.Contains(b.String(), "better") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	rep, err := gate.Judge(gate.Input{Result: r}) // with the comparisons that are in the file, which name no arms
	if err != nil || rep.Outcome != gate.Pass {
		t.Errorf("the gate: %+v, %v", rep, err)
	}
	data, err := os.ReadFile(filepath.Join(golden, "first-schema", result.FileName))
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Replace(data, []byte("inflight.result/1"), []byte("inflight.result/2"), 1)
	if _, err := result.Decode(newer); err == nil || !strings.Contains(err.Error(), "update inflight") {
		t.Errorf("a newer one: %v", err)
	}
}
