package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "inflight"

// pkg is what the rules need to know of a package, in the spelling of go list.
type pkg struct {
	ImportPath string
	Dir        string
	Doc        string
	GoFiles    []string
	Imports    []string
}

// importRule forbids packages to those that it applies to. Paths of this module are given without its name.
type importRule struct {
	reason  string
	applies func(of string) bool
	forbids func(imported string) bool
}

// below reports whether the path is one of the roots or below one.
func below(p string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return p == root || strings.HasPrefix(p, root+"/") })
}

// pure are the packages that take the time as an argument and do no I/O.
var pure = []string{"runner/ledger", "runner/load", "runner/check", "broker/session", "broker/ids", "broker/packet", "broker/topic", "report/stat", "report/gate"}

func importRules() []importRule {
	ours := func(p string) bool { return below(p, "cmd", "scenarios", "runner", "report", "broker") }
	return []importRule{
		{
			"cmd wires all and is imported by none: what others need does not belong into a command",
			func(string) bool { return true },
			func(p string) bool { return below(p, "cmd") },
		},
		{
			"a report knows results alone, so that it can be made again from an old directory",
			func(p string) bool { return below(p, "report") },
			func(p string) bool { return ours(p) && !below(p, "report", "runner/result", "scenarios/rule") },
		},
		{
			"the broker under test is another process; a runner that links the reference broker gives it a home advantage",
			func(p string) bool { return below(p, "runner") },
			func(p string) bool { return below(p, "broker") && p != "broker/packet" },
		},
		{
			"a runner leaves a result behind; it does not judge it",
			func(p string) bool { return below(p, "runner") },
			func(p string) bool { return below(p, "report") },
		},
		{
			"the result is what runner and report share; it must not draw in either",
			func(p string) bool { return below(p, "runner/result") },
			ours,
		},
		{
			"a client library is an arm of the load and nothing else: the wire client, the checks and the broker stand on code of their own",
			func(p string) bool { return !below(p, "runner/library") },
			func(p string) bool { return below(p, "github.com/eclipse") },
		},
		{
			"a transport carries bytes for whoever speaks a protocol on it, and knows none of them",
			func(p string) bool { return below(p, "runner/transport") },
			ours,
		},
		{
			"a fault stands between two ends and carries their bytes, whatever they mean",
			func(p string) bool { return below(p, "runner/fault") },
			ours,
		},
		{
			"a scenario says what to measure and knows nobody who does it",
			func(p string) bool { return below(p, "scenarios") },
			func(p string) bool { return ours(p) && p != "scenarios/rule" },
		},
		{
			"the grammar of gate rules is what scenarios and reports share; it must not draw in either",
			func(p string) bool { return below(p, "scenarios/rule") },
			func(p string) bool { return ours(p) || below(p, "net", "os", "syscall") },
		},
		{
			"the reference broker is a broker like any other: it must not know that it is measured",
			func(p string) bool { return below(p, "broker") },
			func(p string) bool { return ours(p) && !below(p, "broker") },
		},
		{
			"a pure package does no I/O, so that it can be tested to the last state in no time",
			func(p string) bool { return below(p, pure...) },
			func(p string) bool {
				return below(p, "net", "os", "syscall", "io/ioutil", "log", "runtime", "golang.org/x/sys", "golang.org/x/net")
			},
		},
	}
}

// brokenImports checks the rules on a graph and returns a sentence for each import that breaks one.
func brokenImports(packages []pkg) (problems []string) {
	inside := func(p string) string { return strings.TrimPrefix(p, module+"/") }
	for _, p := range packages {
		of := inside(p.ImportPath)
		for _, rule := range importRules() {
			if !rule.applies(of) {
				continue
			}
			for _, imported := range p.Imports {
				if rule.forbids(inside(imported)) {
					problems = append(problems, fmt.Sprintf("%s imports %s: %s", of, inside(imported), rule.reason))
				}
			}
		}
	}
	return problems
}

// clockCalls finds uses of the clock in a source file. A pure package takes the time as an argument.
func clockCalls(name string, source any) (problems []string, err error) {
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, 0)
	if err != nil {
		return nil, err
	}
	local := ""
	for _, imported := range file.Imports {
		if imported.Path.Value == `"time"` {
			local = "time"
			if imported.Name != nil {
				local = imported.Name.Name
			}
		}
	}
	if local == "" {
		return nil, nil
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(clock, s.Sel.Name) {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == local {
				problems = append(problems, fmt.Sprintf("%s uses time.%s: a pure package takes the time as an argument",
					set.Position(s.Pos()), s.Sel.Name))
			}
		}
		return true
	})
	return problems, nil
}

// strangers are the names at the top level that do not belong there. ignored holds the patterns of .gitignore that start
// with a slash, without it, and those without any slash.
func strangers(names, ignored []string) (problems []string) {
	fixed := []string{"cmd", "scenarios", "runner", "report", "broker", "testdata", "go.mod", "go.sum", "README.md", "LICENSE"}
	for _, name := range names {
		known := slices.Contains(fixed, name) || strings.HasPrefix(name, ".") || slices.ContainsFunc(ignored, func(pattern string) bool {
			ok, err := path.Match(pattern, name)
			return ok && err == nil
		})
		if !known {
			problems = append(problems, fmt.Sprintf("%s at the top level: it holds only %s and dot-files", name, strings.Join(fixed, " ")))
		}
	}
	return problems
}

// undocumented are the packages without a comment, and those that others may use without a design page.
func undocumented(packages []pkg) (problems []string) {
	for _, p := range packages {
		switch {
		case p.Doc == "":
			problems = append(problems, p.ImportPath+" has no package comment")
		case !slices.Contains(p.GoFiles, "doc.go") && !strings.Contains(p.ImportPath, "/internal/"):
			problems = append(problems, p.ImportPath+" has no doc.go: the package comment is its design page")
		}
	}
	return problems
}

func TestLayout(t *testing.T) {
	packages := listPackages(t)
	report := func(problems []string) {
		for _, p := range problems {
			t.Error(p)
		}
	}
	report(brokenImports(packages))
	report(undocumented(packages))

	seen := 0
	for _, p := range packages {
		if !below(strings.TrimPrefix(p.ImportPath, module+"/"), pure...) {
			continue
		}
		seen++
		for _, name := range p.GoFiles {
			problems, err := clockCalls(filepath.Join(p.Dir, name), nil)
			if err != nil {
				t.Fatal(err)
			}
			report(problems)
		}
	}
	if seen == 0 {
		t.Error("no pure package was looked at")
	}

	root := filepath.Join("..", "..")
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	report(strangers(names, ignoredNames(t, root)))
}

// Every rule must fail on a graph that breaks it, and say why; the sound graph must pass.
func TestLayoutRulesCanFail(t *testing.T) {
	for _, test := range []struct {
		why, of, imports string
		want             string // "": allowed
	}{
		{"a command is nobody's library", "runner", "cmd/inflight", "cmd wires all"},
		{"a command wires all", "cmd/inflight", "runner", ""},
		{"the name alone is no command", "runner", "scenarios/cmdline", ""},
		{"a report that starts something", "report/page", "runner", "a report knows results alone"},
		{"a report that reads scenario files", "report", "scenarios", "a report knows results alone"},
		{"a report of results", "report/stat", "runner/result", ""},
		{"a gate reads rules", "report/gate", "scenarios/rule", ""},
		{"a scenario file holds rules", "scenarios", "scenarios/rule", ""},
		{"a grammar that reads files", "scenarios/rule", "os", "must not draw in either"},
		{"a report in parts", "report", "report/chart", ""},
		{"a runner that links the broker", "runner/target", "broker", "home advantage"},
		{"a runner that links a part of it", "runner/client", "broker/session", "home advantage"},
		{"a wire client that is not its own", "runner/client", "github.com/eclipse/paho.golang/paho", "an arm of the load and nothing else"},
		{"a library as an arm", "runner/library", "github.com/eclipse/paho.golang/paho", ""},
		{"the codec is for both sides", "runner/client", "broker/packet", ""},
		{"a runner that judges", "runner", "report/stat", "does not judge it"},
		{"a result that knows its maker", "runner/result", "runner/client", "must not draw in either"},
		{"a transport that speaks MQTT", "runner/transport", "broker/packet", "carries bytes"},
		{"a fault that knows its victim", "runner/fault", "runner/target", "carries their bytes"},
		{"a scenario that runs itself", "scenarios", "runner/target", "knows nobody who does it"},
		{"a broker that knows its measurer", "broker/session", "runner/load", "a broker like any other"},
		{"a session that dials", "broker/session", "net", "does no I/O"},
		{"a session that reads a socket's options", "broker/topic", "golang.org/x/sys/unix", "does no I/O"},
		{"statistics that read a file", "report/stat", "os", "does no I/O"},
		{"a ledger that starts a process", "runner/ledger", "os/exec", "does no I/O"},
		{"a parser reads from what it is given", "broker/packet", "io", ""},
		{"a client has to dial", "runner/client", "net", ""},
		{"a package whose name starts alike", "runner/loader", "net", ""},
	} {
		full := func(p string) string {
			if below(p, "cmd", "scenarios", "runner", "report", "broker") {
				return module + "/" + p
			}
			return p
		}
		got := brokenImports([]pkg{{ImportPath: full(test.of), Imports: []string{full(test.imports)}}})
		switch {
		case test.want == "" && len(got) > 0:
			t.Errorf("%s: %q, want it allowed", test.why, got)
		case test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)):
			t.Errorf("%s: %q, want one problem that says %q", test.why, got, test.want)
		}
	}

	for _, test := range []struct {
		why, source string
		want        int
	}{
		{"the clock, called", `package p; import "time"; var _ = time.Now()`, 1},
		{"the clock, handed on", `package p; import "time"; var now = time.Now`, 1},
		{"under another name", `package p; import clock "time"; func f() { clock.Sleep(1); <-clock.After(1) }`, 2},
		{"durations are fine", `package p; import "time"; const d = 2 * time.Second; func f(now time.Time) time.Time { return now.Add(d) }`, 0},
		{"someone else's Now", `package p; import "x/time2"; var _ = time2.Now()`, 0},
	} {
		got, err := clockCalls("p.go", test.source)
		if err != nil || len(got) != test.want {
			t.Errorf("%s: %q, %v, want %d problems", test.why, got, err, test.want)
		}
	}

	if got := strangers([]string{"cmd", "pkg", ".ci", "inflight", "go.mod", "x.prof", "Makefile"}, []string{"inflight", "*.prof"}); len(got) != 2 {
		t.Errorf("strangers: %q, want pkg and Makefile", got)
	}
	if got := undocumented([]pkg{
		{ImportPath: "a"},
		{ImportPath: "b", Doc: "Package b.", GoFiles: []string{"b.go"}},
		{ImportPath: "c", Doc: "Package c.", GoFiles: []string{"c.go", "doc.go"}},
		{ImportPath: "c/internal/d", Doc: "Package d.", GoFiles: []string{"d.go"}},
	}); len(got) != 2 {
		t.Errorf("undocumented: %q, want a and b", got)
	}
}

// listPackages asks the go command, for one system: rules hold for the files of every system, and the pure packages have
// none of their own.
func listPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,GoFiles,Imports", module+"/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []pkg
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packages = append(packages, p)
	}
}

func ignoredNames(t *testing.T, root string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, ".gitignore"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		line = strings.Trim(strings.TrimSpace(line), "/")
		if line != "" && !strings.HasPrefix(line, "#") && !strings.Contains(line, "/") {
			names = append(names, line)
		}
	}
	return names
}
