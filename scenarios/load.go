package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"inflight/scenarios/rule"
)

// maxFile bounds a scenario file: the largest sensible one is a tenth of it, and the YAML parser takes quadratic time for deep
// nesting.
const maxFile = 16 << 10

// FileError is everything that is wrong with one scenario file.
type FileError struct {
	Problems []Problem // in the order of the file, at least one
	file     string
	lines    []string
}

// Problem is one fault at its place. Line and Column count from 1; 0 where the fault has no place.
type Problem struct {
	Line, Column int
	Text         string
}

// Error shows each problem as file:line:column: text, with the offending line and a mark below it.
func (e *FileError) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		if p.Line < 1 {
			fmt.Fprintf(&b, "%s: %s", e.file, p.Text)
			continue
		}
		fmt.Fprintf(&b, "%s:%d:%d: %s", e.file, p.Line, p.Column, p.Text)
		if p.Line > len(e.lines) {
			continue
		}
		line := strings.TrimRight(e.lines[p.Line-1], "\r")
		// The mark must stand under the character, whatever width the terminal gives a tab.
		pad := []rune(line)
		pad = pad[:min(max(p.Column-1, 0), len(pad))]
		for j, r := range pad {
			if r != '\t' {
				pad[j] = ' '
			}
		}
		fmt.Fprintf(&b, "\n%5d | %s\n      | %s^", p.Line, line, string(pad))
	}
	return b.String()
}

// Load reads a scenario file strictly: an unknown or repeated key, a value of the wrong kind or out of its range is a
// problem, and all problems are reported at once in a *FileError. name stands for the file in messages. What only makes
// sense of the whole (replicas and nodes, number of arms) is left to Validate, because flags may still change it.
//
// A setting is a value, or a list for the keys that make a sweep. Arms are target strings, or maps of name,
// target and client.
// The quick section holds the settings that --quick changes.
func Load(name string, data []byte) (*Scenario, error) {
	l := &loader{err: &FileError{file: name}}
	if len(data) > maxFile {
		l.err.Problems = []Problem{{Text: fmt.Sprintf("larger than %d KiB: not a scenario file", maxFile>>10)}}
		return nil, l.err
	}
	l.err.lines = strings.Split(string(data), "\n")
	file, err := parse(data)
	if err != nil {
		l.syntax(err)
		return nil, l.err
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc != nil && doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	switch len(bodies) {
	case 0:
		l.err.Problems = []Problem{{Text: "holds no scenario: it needs at least arms"}}
	case 1:
		l.document(bodies[0])
	default:
		l.at(bodies[1], "a second document: one scenario per file")
	}
	if len(l.err.Problems) > 0 {
		return nil, l.err
	}
	return &l.s, nil
}

// parse keeps a fault of the YAML parser on hostile input from becoming a panic of ours.
func parse(data []byte) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			file, err = nil, fmt.Errorf("the YAML parser gave up: %v", r)
		}
	}()
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}

// loader fills one Scenario from the syntax tree. It walks the tree itself, rather than decoding into a struct, so that
// every value keeps its place and one pass finds all problems.
type loader struct {
	s   Scenario
	err *FileError
}

func (l *loader) syntax(err error) {
	p := Problem{Text: "not valid YAML: " + err.Error()}
	var at yaml.Error
	if errors.As(err, &at) {
		p = place(at.GetToken())
		p.Text = "not valid YAML: " + at.GetMessage()
	}
	l.err.Problems = append(l.err.Problems, p)
}

func (l *loader) at(node ast.Node, format string, args ...any) {
	// The token of a map is its first colon, which nobody would look for.
	if m, ok := node.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		node = m.Values[0].Key
	}
	if m, ok := node.(*ast.MappingValueNode); ok {
		node = m.Key
	}
	p := place(node.GetToken())
	p.Text = fmt.Sprintf(format, args...)
	l.err.Problems = append(l.err.Problems, p)
}

func place(t *token.Token) Problem {
	if t == nil || t.Position == nil {
		return Problem{}
	}
	return Problem{Line: t.Position.Line, Column: t.Position.Column}
}

func (l *loader) document(body ast.Node) {
	known := []string{"name", "question", "arms", "quick", "gate"}
	for _, k := range keys() {
		known = append(known, k.Name)
	}
	l.mapping(body, "a scenario is a map of keys, as window: [1, 10]", known, func(name string, at, value ast.Node) {
		switch name {
		case "name":
			if text, ok := l.text(value, "name"); ok {
				if problem := checkName("name", text, 60); problem != "" {
					l.at(value, "%s", problem)
				}
				l.s.Name = text
			}
		case "question":
			l.s.Question, _ = l.text(value, "question")
			l.s.Question = strings.TrimSpace(l.s.Question)
		case "arms":
			l.arms(value)
		case "quick":
			l.quick(value)
		case "gate":
			l.gate(value)
		default:
			l.setting(&l.s, name, at, value)
		}
	})
}

// mapping calls visit for every entry of a map with one of the known keys.
func (l *loader) mapping(node ast.Node, what string, known []string, visit func(name string, at, value ast.Node)) {
	var entries []*ast.MappingValueNode
	switch node := node.(type) {
	case *ast.MappingNode:
		entries = node.Values
	case *ast.MappingValueNode: // a map of one entry
		entries = []*ast.MappingValueNode{node}
	default:
		l.at(node, "%s", what)
		return
	}
	seen := map[string]bool{}
	for _, entry := range entries {
		token := entry.Key.GetToken()
		name := token.Value
		switch {
		case !slices.Contains(known, name):
			l.at(entry.Key, "unknown key %q%s", name, DidYouMean(name, known))
		case seen[name]:
			l.at(entry.Key, "key %q is given twice", name)
		case entry.Value == nil:
			l.at(entry.Key, "%s has no value", name)
		default:
			visit(name, entry.Key, entry.Value)
		}
		seen[name] = true
	}
}

// setting stores a value, or the values of a list, and returns their text.
func (l *loader) setting(s *Scenario, name string, at, value ast.Node) []string {
	k, err := lookUp(name)
	if err != nil {
		l.at(at, "%v", err)
		return nil
	}
	nodes := []ast.Node{value}
	if list, ok := value.(*ast.SequenceNode); ok {
		nodes = list.Values
		if len(nodes) == 0 {
			l.at(value, "%s is an empty list", name)
		}
		if !k.List {
			l.at(value, "%s takes one value, not a list", name)
			return nil
		}
	}
	var values []string
	for i, node := range nodes {
		text, ok := l.text(node, name)
		if !ok {
			continue
		}
		if err := k.set(s, i, text); err != nil {
			l.at(node, "%v", err)
		}
		values = append(values, text)
	}
	return values
}

// text returns a scalar the way it is written.
func (l *loader) text(node ast.Node, name string) (string, bool) {
	switch node := node.(type) {
	case *ast.StringNode:
		return node.Value, true
	case *ast.LiteralNode: // | and > blocks
		return node.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return node.GetToken().Value, true
	case *ast.NullNode:
		l.at(node, "%s has no value", name)
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		l.at(node, "anchors, aliases and tags are not used in scenario files")
	default:
		l.at(node, "%s is a value, or a list of values where a list makes sense", name)
	}
	return "", false
}

func (l *loader) arms(node ast.Node) {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		l.at(node, "arms is a list of targets, or of maps with name and target")
		return
	}
	if len(list.Values) == 0 {
		l.at(node, "arms is an empty list: name a target to measure")
	}
	for _, entry := range list.Values {
		var arm Arm
		switch entry := entry.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			l.mapping(entry, "", []string{"name", "target", "client"}, func(name string, _, value ast.Node) {
				if name == "target" {
					arm.Target = l.target(value)
				} else if name == "client" {
					arm.Client = l.client(value)
				} else if text, ok := l.text(value, "name"); ok {
					if problem := checkName("arm name", text, 16); problem != "" {
						l.at(value, "%s", problem)
					}
					arm.Name = text
				}
			})
			if arm.Target == "" {
				l.at(entry, "this arm has no target")
			}
		default:
			arm.Target = l.target(entry)
		}
		l.s.Arms = append(l.s.Arms, arm)
	}
}

// target reads a target string. The null broker is written like YAML's null, and means the broker here.
func (l *loader) target(node ast.Node) string {
	if null, ok := node.(*ast.NullNode); ok && null.GetToken().Value == "null" {
		return "null"
	}
	text, _ := l.text(node, "target")
	return text
}

// client reads the name of an arm's client.
func (l *loader) client(node ast.Node) string {
	text, ok := l.text(node, "client")
	if problem := clientProblem(text); ok && problem != "" {
		l.at(node, "%s", problem)
	}
	return text
}

// gate reads the rules of a gate: one, or a list of them.
func (l *loader) gate(node ast.Node) {
	nodes := []ast.Node{node}
	if list, ok := node.(*ast.SequenceNode); ok {
		nodes = list.Values
		if len(nodes) == 0 {
			l.at(node, "gate is an empty list")
		}
		if len(nodes) > rule.MaxRules {
			l.at(node, "gate has %d rules: at most %d", len(nodes), rule.MaxRules)
		}
	}
	for _, node := range nodes {
		text, ok := l.text(node, "gate")
		if !ok {
			continue
		}
		r, err := rule.Parse(text)
		if err != nil {
			l.at(node, "%v", err)
			continue
		}
		l.s.Gate = append(l.s.Gate, r.String())
	}
}

func (l *loader) quick(node ast.Node) {
	var known []string
	for _, k := range keys() {
		known = append(known, k.Name)
	}
	l.s.QuickForm = []Setting{}
	var trial Scenario
	l.mapping(node, "quick is a map of the settings that --quick changes", known, func(name string, at, value ast.Node) {
		if values := l.setting(&trial, name, at, value); len(values) > 0 {
			l.s.QuickForm = append(l.s.QuickForm, Setting{Key: name, Values: values})
		}
	})
}
