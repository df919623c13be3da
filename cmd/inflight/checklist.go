package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"inflight/runner/check"
	"inflight/runner/probe"
	"inflight/scenarios"
)

// listedRule is a rule as --list --format json has it.
type listedRule struct {
	ID         string   `json:"id"`
	Group      string   `json:"group"`
	Title      string   `json:"title"`
	Level      string   `json:"level"`
	MQTT       []string `json:"mqtt"`
	Statements []string `json:"statements,omitempty"` // of both versions
	Remark     string   `json:"remark,omitempty"`
	Needs      []string `json:"needs,omitempty"`
	Control    string   `json:"control"`
	Rounds     bool     `json:"rounds"` // racy: it runs several rounds
	Faults     []string `json:"faults,omitempty"`
}

func listed(r *check.Rule) listedRule {
	l := listedRule{
		ID: r.ID, Group: r.Group(), Title: r.Title, Level: r.Level.String(), Remark: r.Why, Control: check.ControlFor(r).ID, Rounds: r.Racy, Faults: r.Faults,
	}
	for _, v := range []struct {
		level byte
		name  string
	}{{4, "3.1.1"}, {5, "5.0"}} {
		if r.Applies(v.level) {
			l.MQTT = append(l.MQTT, v.name)
			for _, s := range r.StatementsOf(v.level) {
				if !strings.Contains(" "+strings.Join(l.Statements, " ")+" ", " "+s+" ") {
					l.Statements = append(l.Statements, s)
				}
			}
		}
	}
	for _, n := range r.Needs {
		l.Needs = append(l.Needs, string(n))
	}
	return l
}

// listRules prints the catalogue.
func listRules(w io.Writer, rules []*check.Rule, format string) error {
	var all []listedRule
	for _, r := range rules {
		all = append(all, listed(r))
	}
	switch format {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(all)
	case "markdown":
		fmt.Fprintf(w, "| id | MQTT | level | what must be | statements |\n|---|---|---|---|---|\n")
		for _, l := range all {
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", l.ID, strings.Join(l.MQTT, ", "), l.Level, l.Title, strings.Join(l.Statements, " "))
		}
		return nil
	case "junit":
		return usagef("--list has the formats table, json and markdown")
	}
	for _, l := range all {
		fmt.Fprintf(w, "%-11s %-10s %-8s %s\n", l.ID, strings.Join(l.MQTT, ","), l.Level, l.Title)
	}
	fmt.Fprintf(w, "%d rules\n", len(all))
	return nil
}

// explainRule prints all that is known about a rule.
func explainRule(w io.Writer, id string) error {
	r := check.ByID(strings.ToUpper(strings.TrimSpace(id)))
	if r == nil {
		var ids []string
		for _, r := range append(check.Catalogue(), check.AllInvariants()...) {
			ids = append(ids, r.ID)
		}
		return usagef("no rule is called %q%s (see: inflight check --list)", id, scenarios.DidYouMean(strings.ToUpper(id), ids))
	}
	l := listed(r)
	fmt.Fprintf(w, "%s  %s\n\nlevel       %s\nMQTT        %s\n", l.ID, l.Title, l.Level, strings.Join(l.MQTT, ", "))
	for _, line := range []struct{ name, text string }{
		{"statements", strings.Join(l.Statements, ", ")},
		{"remark", l.Remark},
		{"needs", strings.Join(l.Needs, ", ")},
		{"control", l.Control + ": " + check.ControlFor(r).Title},
	} {
		if line.text != "" {
			fmt.Fprintf(w, "%-11s %s\n", line.name, line.text)
		}
	}
	caps := check.Caps{
		MaxQoS: 2, Receive: 65_535, Retain: true, Wildcards: true, Shared: true, SubIDs: true, MaxPacket: 1 << 20, Aliases: 10, Delivers: true, Method: "A",
	}
	level := byte(4)
	if !r.Applies(level) {
		level = 5
	}
	fmt.Fprintf(w, "\n%s", probe.Explain(r, level, caps))
	return nil
}
