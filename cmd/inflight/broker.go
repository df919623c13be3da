package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inflight/broker"
	"inflight/broker/node"
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
	options := brokerOptions{}
	faults := misbehaveFlags{}
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Serve the reference broker",
		Long: `Broker serves the reference broker: MQTT 3.1.1 and 5.0 with a pipelined QoS 1
and QoS 2 path, on an embedded JetStream node, alone or as a member of a
cluster, or on NATS servers that are already running (--nats). It logs to
stderr. On SIGINT or SIGTERM it stops accepting, answers what it has read, and
exits; a second signal ends it at once.

With --nats there is no embedded node, and brokers on the same servers are one
broker; each needs a --node name of its own. The user needs JetStream, leave to
publish to inf.>, $JS.API.> and $JS.ACK.>, and leave to subscribe to inf.>.

Clients that prove no name are let in while every listener is on a loopback
interface and there is no password file, or with --allow-anonymous. SIGHUP makes
it read the certificates, the passwords and the ACL again.

An ACL file has one rule a line; the first that decides wins, and what none
decides is denied:
  user sensor-*  allow  publish    data/%u/#
  user boss      allow  both       "data/#"
  client wall-*  allow  subscribe  data/+/summary
  anonymous      allow  subscribe  public/#
  everyone       deny   both       secret/#
%u is the user's name, %c the Client Identifier. Lines that start with # are
comments.

Every flag can be set in a file (--config), under its name. --print-config shows
what is in effect, as such a file.`,
		Example: `  inflight broker --store-dir ./data
  inflight broker --store memory --listen 127.0.0.1:1884
  inflight broker --nats nats://127.0.0.1:4222 --nats-creds broker.creds --replicas 3
  inflight broker --config broker.yaml --ops-listen 127.0.0.1:9180
  inflight broker --store-dir ./data --listener mqtts://0.0.0.0:8883 --listener wss://0.0.0.0:8884/mqtt \
      --cert cert.pem --key key.pem --password-file users --acl-file acl
  inflight broker --node n1 --store-dir ./n1 --listen 127.0.0.1:1883 --cluster c --cluster-listen 127.0.0.1:6001 \
      --routes nats://127.0.0.1:6001,nats://127.0.0.1:6002,nats://127.0.0.1:6003 --replicas 3`,
		Args:    arguments(0, 0, "no argument"),
		Version: toolVersion(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			done, err := options.resolve(cmd.Flags(), &cfg, cmd.OutOrStdout(), cmd.ErrOrStderr(), func() error {
				if len(cfg.Listeners) > 0 && !cmd.Flags().Changed("listen") {
					cfg.Listen = ""
				}
				return errors.Join(faults.check(), broker.Check(cfg))
			})
			if done || err != nil {
				return err
			}
			if cfg.NATS.Given() && !cmd.Flags().Changed("max-packet") {
				cfg.MaxPacket = 0 // the default, or less where the servers have no room for it
			}
			cfg.Pipeline = bool(pipeline)
			cfg.Reload = hangups(cmd.Context())
			if cfg.Store != broker.StoreMemory {
				tightenHeap()
			}
			if len(faults.faults) > 0 {
				return faults.serve(cmd.Context(), cfg)
			}
			return broker.Serve(cmd.Context(), cfg)
		},
	}
	cmd.SetVersionTemplate("inflight {{.Version}}\n")
	f := cmd.Flags()
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:1883", "`HOST:PORT` of a plain MQTT listener; with --listener there is none by default")
	addAccessFlags(f, &cfg.Access)
	f.StringVar(&cfg.Store, "store", broker.StoreStaged, "`STORE` that keeps the messages: staged, journal or memory")
	f.StringVar(&cfg.StoreDir, "store-dir", "", "`DIR` of the embedded node's files; needed unless --store is memory or --nats is given")
	f.BoolVar(&cfg.Sync, "sync", false, "sync to disk before a message is acknowledged")
	f.Var(&pipeline, "pipeline", "on, or off: wait for the store inside the read loop (stop-and-wait)")
	f.StringVar(&cfg.Node, "node", "n1", "`NAME` of this node, unique in the cluster")
	f.StringVar(&cfg.Cluster, "cluster", "", "`NAME` of the cluster; none: a node of its own")
	f.StringVar(&cfg.ClusterListen, "cluster-listen", "", "`HOST:PORT` for the other members")
	f.StringVar(&cfg.Advertise, "cluster-advertise", "", "`HOST:PORT` where the other members reach --cluster-listen, if that is another one, as behind a NAT")
	f.StringSliceVar(&cfg.Routes, "routes", nil, "`URLS` nats://HOST:PORT of every member, this one included")
	f.IntVar(&cfg.Replicas, "replicas", 1, "`N` copies of each stream")
	f.BoolVar(&cfg.Lead, "lead", false, "ask for the leadership of the streams; with --nats, for the server that it is connected to")
	addNATSFlags(f, &cfg.NATS)
	options.register(f, &cfg)
	faults.register(f)
	cmd.AddCommand(newPasswdCommand())
	return cmd
}

// natsFlag is the flag whose value may hold a password.
const natsFlag = "nats"

// addNATSFlags puts the flags on NATS servers that are already running.
func addNATSFlags(f *pflag.FlagSet, s *node.Servers) {
	f.StringSliceVar(&s.URLs, natsFlag, nil, "`URLS` of NATS servers to use in place of an embedded node: nats:// or tls://[USER:PASSWORD@|TOKEN@]HOST:PORT")
	f.StringVar(&s.Creds, "nats-creds", "", "credentials `FILE` for them: a user's JWT and seed")
	f.StringVar(&s.NKey, "nats-nkey", "", "`FILE` of a user's nkey seed for them")
	f.StringVar(&s.CA, "nats-ca", "", "`FILE` of the CA of their certificates, PEM; none: the system's")
	f.StringVar(&s.Cert, "nats-cert", "", "certificate `FILE` of the broker for them, PEM")
	f.StringVar(&s.Key, "nats-key", "", "`FILE` of its key, PEM")
}

// addAccessFlags puts the flags on who may connect, and where.
func addAccessFlags(f *pflag.FlagSet, a *broker.Access) {
	f.StringArrayVar(&a.Listeners, "listener", nil, "`URL` of a listener: mqtt://, mqtts://, ws:// or wss://HOST:PORT; may be repeated")
	f.StringVar(&a.Cert, "cert", "", "certificate `FILE` of the TLS listeners, PEM")
	f.StringVar(&a.Key, "key", "", "`FILE` of its key, PEM")
	f.StringVar(&a.ClientCA, "client-ca", "", "`FILE` of the CA of clients' certificates; the Common Name is the user's name")
	f.StringVar(&a.ClientCert, "client-cert", "require", "`WORD`, with --client-ca: require a certificate, or optional")
	f.StringSliceVar(&a.Origins, "ws-origin", nil, "`HOST` whose web pages may connect by WebSocket; may be repeated")
	f.StringVar(&a.PasswordFile, "password-file", "", "`FILE` of users (see: inflight broker passwd --help)")
	f.StringVar(&a.ACLFile, "acl-file", "", "`FILE` of who may publish and subscribe what; without it everyone may")
	f.BoolVar(&a.AllowAnonymous, "allow-anonymous", false, "let clients in that prove no name, also from other machines")
	f.IntVar(&a.MaxConnections, "max-connections", 50_000, "`N` connections over all listeners; more are closed at once")
}
