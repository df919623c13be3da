package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"inflight/broker"
)

// switchValue is a flag that takes on and off beside what a bool takes.
type switchValue bool

func (v *switchValue) String() string {
	if *v {
		return "on"
	}
	return "off"
}

func (v *switchValue) Set(s string) error {
	switch strings.ToLower(s) {
	case "on", "true", "1", "yes":
		*v = true
	case "off", "false", "0", "no":
		*v = false
	default:
		return fmt.Errorf("%q is neither on nor off", s)
	}
	return nil
}

func (v *switchValue) Type() string { return "on|off" }

// newBrokerCommand serves the reference broker.
func newBrokerCommand() *cobra.Command {
	cfg := broker.Config{}
	pipeline := switchValue(true)
	verbose := false
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Serve the reference broker",
		Long: `Broker serves the reference broker: MQTT 3.1.1 with a pipelined QoS 1 and QoS 2 path, on an embedded
JetStream node, alone or as a member of a cluster. It logs to stderr and stops on SIGINT or SIGTERM.`,
		Example: `  inflight broker --store-dir ./data
  inflight broker --store memory --listen 127.0.0.1:1884
  inflight broker --node n1 --store-dir ./n1 --listen 127.0.0.1:1883 --cluster c --cluster-listen 127.0.0.1:6001 \
      --routes nats://127.0.0.1:6001,nats://127.0.0.1:6002,nats://127.0.0.1:6003 --replicas 3`,
		Args:    arguments(0, 0, "no argument"),
		Version: toolVersion(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			cfg.Pipeline = bool(pipeline)
			cfg.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			if err := broker.Check(cfg); err != nil {
				return usage(err)
			}
			return broker.Serve(cmd.Context(), cfg)
		},
	}
	cmd.SetVersionTemplate("inflight {{.Version}}\n")
	f := cmd.Flags()
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:1883", "`HOST:PORT` of the MQTT listener")
	f.StringVar(&cfg.Store, "store", broker.StoreStaged, "where messages are kept: staged or memory")
	f.StringVar(&cfg.StoreDir, "store-dir", "", "`DIR` of the embedded node's files; needed unless --store is memory")
	f.BoolVar(&cfg.Sync, "sync", false, "sync to disk before a message is acknowledged")
	f.Var(&pipeline, "pipeline", "on, or off: wait for the store inside the read loop (stop-and-wait)")
	f.StringVar(&cfg.Node, "node", "n1", "`NAME` of this node, unique in the cluster")
	f.StringVar(&cfg.Cluster, "cluster", "", "`NAME` of the cluster; none: a node of its own")
	f.StringVar(&cfg.ClusterListen, "cluster-listen", "", "`HOST:PORT` for the other members")
	f.StringSliceVar(&cfg.Routes, "routes", nil, "`URLS` nats://HOST:PORT of every member, this one included")
	f.IntVar(&cfg.Replicas, "replicas", 1, "copies of each stream")
	f.BoolVar(&cfg.Lead, "lead", false, "ask for the leadership of the streams")
	f.BoolVar(&verbose, "verbose", false, "log connections and the embedded node's notices")
	return cmd
}
