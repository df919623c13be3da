package target

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
)

// node is one process to be.
type node struct {
	Name  string         // n1, n2, ...
	Ports map[string]int // by the names of the description
	root  string         // its directory: configuration here, data below

	Relay string // host:port of the relay to the port that the other nodes use, "": there is none
	peers string // the name of that port
}

// address is where a client reaches the port of that name.
func (n *node) address(port string) (string, error) {
	p, ok := n.Ports[port]
	if !ok {
		return "", fmt.Errorf("no port is called %q", port)
	}
	return net.JoinHostPort(loopback, strconv.Itoa(p)), nil
}

// peer is where node by reaches the port of that name: over the relay where there is one.
func (n *node) peer(by *node, port string) (string, error) {
	if port == n.peers && n.Relay != "" && n != by {
		return n.Relay, nil
	}
	return n.address(port)
}

// loopback is the only address that a broker under test is put on.
const loopback = "127.0.0.1"

// data is the node's data directory.
func (n *node) data() string { return filepath.Join(n.root, "data") }

// templateData is what the templates of a description may name, beside the functions of templateFuncs.
type templateData struct {
	Name      string // of this node, unique in the cluster
	Node      *node
	Nodes     []*node // all of them, this one included
	Clustered bool    // more than one node
	Cluster   string  // the cluster's name
	Dir       string  // this node's data directory; exists, and is empty at the first start
	Replicas  int     // stream replicas
	Denied    string  // a Topic Filter that nobody may publish to, "": none; of a description with acl
	Params    map[string]string
}

// templateFuncs are the functions of the templates of node own.
func templateFuncs(own *node) template.FuncMap {
	return template.FuncMap{
		"addr":  func(n *node, port string) (string, error) { return n.address(port) },
		"peer":  func(n *node, port string) (string, error) { return n.peer(own, port) },
		"quote": strconv.Quote,
		"file":  func(name string) string { return filepath.Join(own.root, name) },
	}
}

// parseTemplate parses one argument or file. A key that is not there is an error when it is executed, not "<no value>".
func parseTemplate(text string, own *node) (*template.Template, error) {
	return template.New("").Option("missingkey=error").Funcs(templateFuncs(own)).Parse(text)
}

// render executes the template text for the node of data.
func render(text string, data *templateData) (string, error) {
	t, err := parseTemplate(text, data.Node)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		return "", fmt.Errorf("template %q: %w", firstLine(text), err)
	}
	return b.String(), nil
}

// arguments renders the command line of the node of data, without the program.
func (d *description) arguments(data *templateData) ([]string, error) {
	var args []string
	for _, text := range d.Args {
		arg, err := render(text, data)
		if err != nil {
			return nil, fmt.Errorf("targets/%s.yaml: args: %w", d.Kind, err)
		}
		if arg != "" {
			args = append(args, arg)
		}
	}
	return args, nil
}
