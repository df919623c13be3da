package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/spf13/pflag"

	"inflight/broker"
	"inflight/broker/node"
	"inflight/scenarios"
)

// maxConfigFile bounds a configuration file: the YAML parser takes quadratic time for deep nesting.
const maxConfigFile = 32 << 10

// brokerOptions are the flags of the broker command that say how it is operated.
type brokerOptions struct {
	file    string
	print   bool
	format  choiceValue
	level   choiceValue
	verbose bool
}

// register adds the flags of operation and limits to f. Whatever flag there is, here or elsewhere, is a key of the
// configuration file.
func (o *brokerOptions) register(f *pflag.FlagSet, cfg *broker.Config) {
	d := broker.Defaults()
	f.StringVar(&o.file, "config", "", "`FILE` with settings, a key for each flag; flags win")
	f.BoolVar(&o.print, "print-config", false, "print the effective configuration as such a file, and exit")
	o.format = choiceValue{"text", []string{"text", "json"}}
	f.Var(&o.format, "log-format", "of the log on stderr: text or json")
	o.level = choiceValue{"info", []string{"debug", "info", "warn", "error"}}
	f.Var(&o.level, "log-level", "least severity that is logged: debug, info, warn or error")
	f.BoolVar(&o.verbose, "verbose", false, "the same as --log-level debug: log connections and the embedded node's notices")

	f.StringVar(&cfg.OpsListen, "ops-listen", "", "`HOST:PORT` of the operations listener (metrics, health); without a host on loopback; none: off")
	f.BoolVar(&cfg.Pprof, "pprof", false, "serve Go's profiles on the operations listener")
	f.DurationVar(&cfg.SysInterval, "sys-interval", defaultSysInterval, "`TIME` between two rounds of $SYS messages; 0: none")
	f.DurationVar(&cfg.DrainTimeout, "drain-timeout", d.DrainTimeout, "`TIME` for answering what was read, once asked to stop")

	size := func(p *int, name string, value int, text string) {
		*p = value
		f.Var((*sizeValue)(p), name, text)
	}
	size(&cfg.MaxPacket, "max-packet", d.MaxPacket, "`SIZE` of the largest control packet that is read, as 64KiB or 4MiB")
	f.DurationVar(&cfg.MaxKeepAlive, "max-keep-alive", 0, "`TIME` of Keep Alive that clients of MQTT 5.0 get at most; 0: what they ask for")
	f.DurationVar(&cfg.MaxSessionExpiry, "max-session-expiry", 0, "`TIME` for which a session is kept at most once its client is gone; 0: as the client asks")
	f.IntVar(&cfg.MaxSubscriptions, "max-subscriptions", d.MaxSubscriptions, "`N` subscriptions of one session at most")
	size(&cfg.QueueBytes, "queue-bytes", d.QueueBytes, "`SIZE` of the messages that wait for one session in the memory store, or the journal; further ones are dropped")
	size(&cfg.JournalBytes, "journal-bytes", d.JournalBytes, "`SIZE` of the journal; with more, new messages wait; 0: half of what JetStream may store, 8 GiB at most")
	size(&cfg.JournalCache, "journal-cache", d.JournalCache, "`SIZE` of the journal's messages in memory that subscribers here are about to get; others are read when they are due")
	size(&cfg.JournalAhead, "journal-ahead", d.JournalAhead, "`SIZE` of these messages for one subscription")
	size(&cfg.JournalSnapshot, "journal-snapshot", d.JournalSnapshot, "`SIZE` of journal between two snapshots; what nobody needs before is trimmed then")
	f.IntVar(&cfg.Window, "inbound-window", d.Window, "`N` acknowledged packets of one client under way before it is not read any more")
	f.IntVar(&cfg.Outbound, "outbound-window", d.Outbound, "`N` messages above QoS 0 outstanding to one subscriber")
	f.IntVar(&cfg.Copies, "copies", d.Copies, "`N` messages between PUBLISH and PUBREL of one connection kept in memory beside the store")
	size(&cfg.CopyBytes, "copy-bytes", d.CopyBytes, "`SIZE` of these messages")
	f.DurationVar(&cfg.ConnectTimeout, "connect-timeout", d.ConnectTimeout, "`TIME` from the connection to its CONNECT")
	f.DurationVar(&cfg.StoreTimeout, "store-timeout", d.StoreTimeout, "`TIME` of one store operation")
	f.DurationVar(&cfg.WriteTimeout, "write-timeout", d.WriteTimeout, "`TIME` of one write to a client that does not read")
}

// resolve takes the configuration file in, sets up the log, and prints the configuration if that is asked for; done says
// that there is nothing more to do.
func (o *brokerOptions) resolve(f *pflag.FlagSet, cfg *broker.Config, stdout, stderr io.Writer, check func() error) (done bool, err error) {
	if o.file != "" {
		data, err := readConfig(o.file)
		if err != nil {
			return false, usage(fmt.Errorf("read the configuration: %w", err))
		}
		if err := applyConfig(f, o.file, data); err != nil {
			return false, usage(err)
		}
	}
	// A zero in the configuration of the package means its default; whoever writes it means something else.
	var zero []error
	for _, name := range []string{
		"max-subscriptions", "inbound-window", "outbound-window", "copies", "replicas", "max-connections", "max-packet", "queue-bytes", "copy-bytes",
		"journal-cache", "journal-ahead", "journal-snapshot",
		"connect-timeout", "store-timeout", "write-timeout", "drain-timeout",
	} {
		if v := f.Lookup(name).Value.String(); v == "0" || v == "0s" {
			zero = append(zero, fmt.Errorf("%s is 0, want more", name))
		}
	}
	level := slog.LevelInfo
	if err := level.UnmarshalText([]byte(o.level.value)); err != nil {
		zero = append(zero, fmt.Errorf("log level: %w", err))
	}
	if o.verbose {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	if o.format.value == "json" {
		cfg.Log = slog.New(slog.NewJSONHandler(stderr, options))
	} else {
		cfg.Log = slog.New(slog.NewTextHandler(stderr, options))
	}
	cfg.Version = toolVersion()
	if err := errors.Join(append(zero, check())...); err != nil {
		return false, usage(err)
	}
	if o.print {
		return true, printConfig(stdout, f)
	}
	return false, nil
}

// readConfig reads a file of at most a byte more than is accepted: whatever is named may be endless.
func readConfig(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxConfigFile+1))
}

// isKey reports whether a flag is a key of the configuration file.
func isKey(f *pflag.Flag) bool {
	switch f.Name {
	case "config", "print-config", "help", "version":
		return false
	}
	return !f.Hidden
}

// applyConfig sets the flags that the command line did not set. It is strict, and reports every problem at once.
func applyConfig(f *pflag.FlagSet, name string, data []byte) error {
	l := configLoader{flags: f}
	if len(data) > maxConfigFile {
		l.problems = []scenarios.Problem{{Text: fmt.Sprintf("larger than %d KiB: not a configuration file", maxConfigFile>>10)}}
	} else {
		l.load(data)
	}
	if len(l.problems) > 0 {
		return scenarios.NewFileError(name, masked(data), l.problems)
	}
	return nil
}

// secret is where a URL may hold a password.
var secret = regexp.MustCompile(`://[^\s"']*@`)

// masked is a file in which every password of a URL is written over, so that an offending line can be shown.
func masked(data []byte) []byte {
	return secret.ReplaceAllFunc(data, func(found []byte) []byte {
		return append(append([]byte("://"), bytes.Repeat([]byte("x"), len(found)-len("://@"))...), '@')
	})
}

type configLoader struct {
	flags    *pflag.FlagSet
	problems []scenarios.Problem
}

func (l *configLoader) at(t *token.Token, format string, args ...any) {
	p := scenarios.Problem{Text: fmt.Sprintf(format, args...)}
	if t != nil && t.Position != nil {
		p.Line, p.Column = t.Position.Line, t.Position.Column
	}
	l.problems = append(l.problems, p)
}

func (l *configLoader) load(data []byte) {
	file, err := parseConfig(data)
	if err != nil {
		var at yaml.Error
		if errors.As(err, &at) {
			l.at(at.GetToken(), "not valid YAML: %s", at.GetMessage())
		} else {
			l.at(nil, "not valid YAML: %v", err)
		}
		return
	}
	seen := false
	for _, doc := range file.Docs {
		if doc == nil || doc.Body == nil {
			continue
		}
		if _, comment := doc.Body.(*ast.CommentGroupNode); comment {
			continue
		}
		if seen {
			at := doc.Body.GetToken() // of a map it is the first colon, which nobody would look for
			if m, ok := doc.Body.(*ast.MappingNode); ok && len(m.Values) > 0 {
				at = m.Values[0].Key.GetToken()
			}
			l.at(at, "a second document: one configuration per file")
			return
		}
		seen = true
		l.document(doc.Body)
	}
}

// parseConfig keeps a fault of the YAML parser on hostile input from becoming a panic of ours.
func parseConfig(data []byte) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			file, err = nil, fmt.Errorf("the YAML parser gave up: %v", r)
		}
	}()
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}

func (l *configLoader) document(body ast.Node) {
	var entries []*ast.MappingValueNode
	switch body := body.(type) {
	case *ast.MappingNode:
		entries = body.Values
	case *ast.MappingValueNode: // a map of one entry
		entries = []*ast.MappingValueNode{body}
	default:
		l.at(body.GetToken(), "a configuration is a map of settings, as listen: 127.0.0.1:1883")
		return
	}
	var known []string
	l.flags.VisitAll(func(f *pflag.Flag) {
		if isKey(f) {
			known = append(known, f.Name)
		}
	})
	seen := map[string]bool{}
	for _, entry := range entries {
		at := entry.Key.GetToken()
		key := at.Value
		flag := l.flags.Lookup(key)
		switch {
		case flag == nil || !isKey(flag):
			hint := scenarios.DidYouMean(key, known)
			if hint == "" {
				hint = unknownKeyHint(key, known)
			}
			l.at(at, "unknown key %q%s", key, hint)
		case seen[key]:
			l.at(at, "key %q is given twice", key)
		case entry.Value == nil:
			l.at(at, "%s has no value", key)
		default:
			l.setting(flag, entry.Value)
		}
		seen[key] = true
	}
}

// unknownKeyHint finds a key that is written with other separators, as in storeDir or store_dir.
func unknownKeyHint(key string, known []string) string {
	bare := func(s string) string {
		return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(s))
	}
	for _, k := range known {
		if bare(k) == bare(key) {
			return fmt.Sprintf(": did you mean %q?", k)
		}
	}
	return ""
}

// setting stores one value, or checks it where the command line has the last word.
func (l *configLoader) setting(flag *pflag.Flag, value ast.Node) {
	nodes := []ast.Node{value}
	slice, isSlice := flag.Value.(pflag.SliceValue)
	if list, ok := value.(*ast.SequenceNode); ok {
		if !isSlice {
			l.at(list.GetToken(), "%s takes one value, not a list", flag.Name)
			return
		}
		nodes = list.Values
	}
	var texts []string
	for _, node := range nodes {
		text, ok := l.text(node, flag.Name)
		if !ok {
			return
		}
		texts = append(texts, text)
	}
	var err error
	at := value.GetToken()
	if isSlice {
		before := slice.GetSlice()
		err = slice.Replace(texts)
		if flag.Changed {
			err = errors.Join(err, slice.Replace(before))
		}
	} else {
		before := flag.Value.String()
		err = flag.Value.Set(texts[0])
		if flag.Changed && err == nil {
			err = flag.Value.Set(before)
		}
	}
	if err != nil {
		l.at(at, "%s", wordValueError(flag, texts, err))
		return
	}
	// From here on it counts as given, whoever asks. The key cannot come again.
	flag.Changed = true
}

func wordValueError(flag *pflag.Flag, texts []string, err error) string {
	want := ""
	switch flag.Value.Type() {
	case "int":
		want = "a number"
	case "bool":
		want = "true or false"
	case "duration":
		want = "a duration: write it with a unit, as 800ms or 2s"
	default:
		return fmt.Sprintf("%s: %v", flag.Name, err)
	}
	return fmt.Sprintf("%s %q is not %s", flag.Name, strings.Join(texts, ", "), want)
}

// text returns a scalar the way it is written.
func (l *configLoader) text(node ast.Node, name string) (string, bool) {
	switch node := node.(type) {
	case *ast.StringNode:
		return node.Value, true
	case *ast.LiteralNode: // | and > blocks
		return node.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return node.GetToken().Value, true
	case *ast.NullNode:
		l.at(node.GetToken(), "%s has no value", name)
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		l.at(node.GetToken(), "anchors, aliases and tags are not used in configuration files")
	default:
		l.at(node.GetToken(), "%s is a value, or a list of values where it may be given several times", name)
	}
	return "", false
}

// printConfig writes every key with its effective value, as a file that loads again. Passwords of NATS servers are taken out
// of it; what else is secret is in a file of its own, and here is its path. What depends on the NATS servers is a comment.
func printConfig(w io.Writer, f *pflag.FlagSet) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Effective configuration of inflight %s, for: inflight broker --config FILE\n", toolVersion())
	f.VisitAll(func(flag *pflag.Flag) {
		if !isKey(flag) {
			return
		}
		_, text := pflag.UnquoteUsage(flag)
		fmt.Fprintf(&b, "\n# %s\n", strings.ReplaceAll(text, "\n", " "))
		slice, ok := flag.Value.(pflag.SliceValue)
		if !ok {
			comment := ""
			if flag.Name == "max-packet" && !flag.Changed && f.Changed(natsFlag) {
				comment = "# or less, if the NATS servers take less: "
			}
			fmt.Fprintf(&b, "%s%s: %s\n", comment, flag.Name, scalar(flag.Value.String()))
			return
		}
		values := slice.GetSlice()
		if len(values) == 0 {
			fmt.Fprintf(&b, "%s: []\n", flag.Name)
			return
		}
		fmt.Fprintf(&b, "%s:\n", flag.Name)
		for _, v := range values {
			if flag.Name == natsFlag {
				v = node.Redact(v)
			}
			fmt.Fprintf(&b, "  - %s\n", scalar(v))
		}
	})
	_, err := w.Write(b.Bytes())
	return err
}

var plainScalar = regexp.MustCompile(`^[A-Za-z0-9/._][A-Za-z0-9/._@+-]*(:[A-Za-z0-9/._@+-]+)*$`)

// scalar writes a value plain where YAML takes it for what it is, and in quotes otherwise.
func scalar(s string) string {
	if plainScalar.MatchString(s) && !strings.EqualFold(s, "null") {
		return s
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b) // a JSON string is a YAML string
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	return strings.TrimSuffix(b.String(), "\n")
}
