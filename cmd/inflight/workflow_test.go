package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/spf13/pflag"
)

// Workflows must be YAML, and every flag that they give to inflight must exist. The README shows the one that init writes.
func TestWorkflows(t *testing.T) {
	files := map[string]string{"workflow.yml": workflow}
	own, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(own) < 2 {
		t.Fatalf("workflows of this repository: %q, %v", own, err)
	}
	for _, name := range own {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(data)
	}
	known := map[string]bool{}
	for _, c := range newRootCommand().Commands() {
		c.Flags().VisitAll(func(f *pflag.Flag) { known[c.Name()+" --"+f.Name] = true })
	}
	call := regexp.MustCompile(`(?s)/(?:inflight|head)" (compare|check) (.*?)(?:\n\n|$)`)
	flag := regexp.MustCompile(`--[a-z-]+`)
	gates := 0
	for name, text := range files {
		var w struct {
			Jobs map[string]struct {
				Steps []struct {
					Uses, Run string
				}
			}
		}
		if err := yaml.Unmarshal([]byte(text), &w); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for job, j := range w.Jobs {
			for _, step := range j.Steps {
				if (step.Uses == "") == (step.Run == "") {
					t.Errorf("%s: %s has a step with neither or both of uses and run", name, job)
				}
				for _, m := range call.FindAllStringSubmatch(step.Run, -1) {
					if strings.Contains(m[2], "--gate") {
						gates++
					}
					for _, f := range flag.FindAllString(m[2], -1) {
						if !known[m[1]+" "+f] {
							t.Errorf("%s: inflight %s has no flag %s", name, m[1], f)
						}
					}
				}
			}
		}
	}
	if gates != 2 {
		t.Errorf("%d calls of the gate, want one in this repository and one in what init writes", gates)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```yaml\n"+workflow+"```") {
		t.Error("the README does not show the workflow that inflight init ci writes")
	}
}
