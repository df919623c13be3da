package library

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"inflight/runner/client"
	"inflight/scenarios"
)

// Population is a set of open publishing connections, see [client.Population]. Run may be called once.
type Population interface {
	Run(ctx context.Context) (*client.Stats, error)
	Published() int64 // so far; it may be called from any goroutine, as Due
	Due() int64       // messages that the schedule of an open loop wants published by now; 0 for a closed one
	Close() error
}

// Client is one of the libraries, ready for use. It belongs to one goroutine.
type Client struct {
	name    string
	version string
	js      *node // of MQTT.js
}

// module is the Go module of each library that is one.
var module = map[string]string{
	scenarios.ClientPaho:  "github.com/eclipse/paho.golang",
	scenarios.ClientPaho3: "github.com/eclipse/paho.mqtt.golang",
}

// Check says what this machine lacks for a client, and how to install it; nil if nothing.
func Check(name string) error {
	if name != scenarios.ClientMQTTjs {
		return nil
	}
	_, err := findNode()
	return err
}

// Prepare makes a client ready; that of MQTT.js is installed below cacheDir when it is not there. talk is told about what
// takes long.
func Prepare(ctx context.Context, name, cacheDir string, talk func(format string, args ...any)) (*Client, error) {
	switch name {
	case scenarios.ClientPaho, scenarios.ClientPaho3:
		return &Client{name: name, version: moduleVersion(module[name])}, nil
	case scenarios.ClientMQTTjs:
		js, err := install(ctx, cacheDir, talk)
		if err != nil {
			return nil, fmt.Errorf("prepare client %s: %w", name, err)
		}
		return &Client{name: name, version: js.version, js: js}, nil
	}
	return nil, fmt.Errorf("client %q is not a library", name)
}

// moduleVersion is the version of a module in this program; "" where the build did not record it.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return ""
}

// Version names the library and its version for people, as "paho.golang v0.23.0".
func (c *Client) Version() string {
	name := map[string]string{
		scenarios.ClientPaho: "paho.golang", scenarios.ClientPaho3: "paho.mqtt.golang", scenarios.ClientMQTTjs: "MQTT.js",
	}[c.name]
	if c.version != "" {
		name += " " + c.version
	}
	return name
}

// Unordered reports whether messages that are outstanding together may go out in another order than they were published in,
// as far as an application can tell.
func (c *Client) Unordered(window int) bool { return c.name == scenarios.ClientPaho && window > 1 }

// Process is the id of the process that carries the load; ok is false if it is this one, or none has been started.
func (c *Client) Process() (pid int, ok bool) {
	if c.js == nil || c.js.process == nil {
		return 0, false
	}
	return c.js.process.Pid(), true
}

// Open checks the plan and makes every connection. On an error none stays open.
func (c *Client) Open(ctx context.Context, plan client.Plan) (Population, error) {
	plan = plan.WithDefaults()
	if err := plan.Validate(); err != nil {
		return nil, err
	}
	if plan.QoS == 0 {
		return nil, errors.New("load: QoS 0 through a client library: it does not say when the broker has taken a message in")
	}
	if c.js != nil {
		return c.js.open(ctx, plan)
	}
	dial := dialPaho
	if c.name == scenarios.ClientPaho3 {
		dial = dialPaho3
	}
	return open(ctx, plan, dial)
}

// Close ends the process of the client, if it has one.
func (c *Client) Close() error {
	if c.js == nil {
		return nil
	}
	return c.js.close()
}
