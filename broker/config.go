package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"inflight/broker/node"
)

// Stores that a broker can be started with.
const (
	StoreStaged  = "staged"
	StoreJournal = "journal"
	StoreMemory  = "memory"
)

// Config of a broker. The zero value of a field means its default.
type Config struct {
	Listen   string // plain MQTT listener, host:port; default 127.0.0.1:1883 unless there are Listeners
	Store    string // staged, journal or memory; default staged
	StoreDir string // required by stores on disk
	Sync     bool   // sync to disk before a message is acknowledged
	Pipeline bool   // false: wait for the store inside the read loop

	Node          string   // name of this node; default n1
	Cluster       string   // name of the cluster; "": none
	ClusterListen string   // host:port for the other members
	Advertise     string   // host:port where they reach it when that is another one; "": ClusterListen
	Routes        []string // nats://host:port of every member
	Replicas      int      // of every stream; default 1
	Lead          bool     // ask for the leadership of the streams; with NATS, for the server that the broker is connected to

	NATS node.Servers // that are already running, in the place of an embedded node

	MaxPacket      int           // bytes of one control packet's Remaining Length; default 4 MiB, or what NATS has room for
	Window         int           // acknowledged packets of one connection under way before it is not read any more; default 8,192
	Outbound       int           // messages outstanding to one subscriber; default 1,024
	Copies         int           // bodies of held messages of one connection kept in memory beside the store; default 4,096
	CopyBytes      int           // and their size; default 16 MiB
	ConnectTimeout time.Duration // from accept to CONNECT; default 10 s
	StoreTimeout   time.Duration // of one store operation; default 10 s
	WriteTimeout   time.Duration // of one write to a client that does not read; default 30 s

	MaxKeepAlive     time.Duration // that a client of MQTT 5.0 gets, in whole seconds; 0: what it asks for
	MaxSessionExpiry time.Duration // after which a session ends once its client is gone, in whole seconds; 0: as the client asks

	MaxSubscriptions int // of one session; default 1,000
	QueueBytes       int // that wait for one session in the memory store, or the journal; default 1 GiB

	JournalBytes    int // of the journal: with more new messages wait; 0: half of what JetStream may store, 8 GiB at most
	JournalCache    int // of messages that are kept in memory because a subscriber here is about to get them; default 256 MiB
	JournalAhead    int // and of those for one subscription; default 32 MiB
	JournalSnapshot int // of journal between two snapshots; default 64 MiB

	OpsListen    string        // operations listener, host:port; "": none
	Pprof        bool          // serve Go's profiles there
	SysInterval  time.Duration // between two rounds of $SYS messages; 0: none
	DrainTimeout time.Duration // for what is under way when the broker is asked to stop; default 10 s
	Version      string        // that metrics and $SYS name; default unknown

	Access // who may connect, and where

	Log *slog.Logger

	roomy bool          // nobody chose MaxPacket: it may become less
	away  time.Duration // without NATS, after which every session is given up
}

func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	defTime := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	c.Access = c.Access.withDefaults()
	if c.Listen == "" && len(c.Listeners) == 0 && !c.NoListener {
		c.Listen = "127.0.0.1:1883"
	}
	if c.Store == "" {
		c.Store = StoreStaged
	}
	if c.Node == "" {
		c.Node = "n1"
	}
	c.roomy = c.roomy || c.MaxPacket == 0
	def(&c.Replicas, 1)
	def(&c.MaxPacket, 4<<20)
	def(&c.Window, 8192)
	def(&c.Outbound, 1024)
	def(&c.Copies, 4096)
	def(&c.CopyBytes, 16<<20)
	defTime(&c.ConnectTimeout, 10*time.Second)
	defTime(&c.StoreTimeout, 10*time.Second)
	defTime(&c.WriteTimeout, 30*time.Second)
	defTime(&c.DrainTimeout, 10*time.Second)
	def(&c.MaxSubscriptions, 1000)
	def(&c.QueueBytes, 1<<30)
	def(&c.JournalCache, 256<<20)
	def(&c.JournalAhead, 32<<20)
	def(&c.JournalSnapshot, 64<<20)
	defTime(&c.away, awayAfter)
	if c.Version == "" {
		c.Version = "unknown"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Check validates a configuration without starting anything, with the defaults filled in; it reports every problem at
// once.
func Check(c Config) error {
	c = c.withDefaults()
	return c.validate()
}

func (c *Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if _, _, err := net.SplitHostPort(c.Listen); err != nil && c.Listen != "" {
		bad("listener %q: want host:port", c.Listen)
	} else if err := c.validateAccess(); err != nil {
		errs = append(errs, err)
	}
	positive := func(name string, v int64) {
		if v < 0 {
			bad("%s is negative", name)
		}
	}
	positive("the window", int64(c.Window))
	positive("the outbound window", int64(c.Outbound))
	positive("the packet limit", int64(c.MaxPacket))
	positive("the number of replicas", int64(c.Replicas))
	c.validateLimits(bad)
	switch c.Store {
	case StoreMemory:
		if c.NATS.Given() {
			bad("the memory store keeps nothing on NATS servers: use --store staged or --store journal with --nats")
			if err := c.NATS.Validate(); err != nil {
				errs = append(errs, err)
			}
		}
		if c.Cluster != "" || c.Replicas > 1 {
			bad("the memory store is a node of its own: use --store staged or --store journal for a cluster or replicas")
		}
		if c.Sync {
			bad("the memory store cannot sync to disk")
		}
	case StoreStaged, StoreJournal:
		if c.NATS.Given() {
			c.validateNATS(bad)
			break
		}
		n := c.nodeConfig()
		if err := n.Validate(); err != nil {
			errs = append(errs, err)
		}
		if c.Replicas > 1 && c.Cluster == "" {
			bad("%d replicas need a cluster: give --cluster and --routes", c.Replicas)
		}
		if c.Cluster != "" && c.Replicas > len(c.Routes) {
			bad("%d replicas in a cluster of %d routes", c.Replicas, len(c.Routes))
		}
	default:
		bad("unknown store %q: want %s, %s or %s", c.Store, StoreStaged, StoreJournal, StoreMemory)
	}
	return errors.Join(errs...)
}

func (c *Config) nodeConfig() node.Config {
	return node.Config{
		Name: c.Node, StoreDir: c.StoreDir, Cluster: c.Cluster, ClusterListen: c.ClusterListen, Advertise: c.Advertise, Routes: c.Routes,
		SyncAlways: c.Sync, Log: c.Log,
	}
}
