//go:build ignore

// Mochi is a broker made of the module github.com/mochi-mqtt/server, which is a library: its own command keeps nothing on
// disk. It is built in the user's cache, in a module of its own, and never part of inflight.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/hooks/storage/bolt"
	"github.com/mochi-mqtt/server/v2/listeners"
	"go.etcd.io/bbolt"
)

func main() {
	listen := flag.String("listen", "", "`ADDRESS` of the MQTT listener")
	store := flag.String("store", "", "`FILE` of the Bolt database, empty: nothing is stored")
	sync := flag.Bool("sync", false, "each write waits for the disk")
	version := flag.Bool("version", false, "print the version of the module")
	flag.Parse()
	if *version {
		fmt.Println("mochi v" + mqtt.Version)
		return
	}
	if err := serve(*listen, *store, *sync); err != nil {
		fmt.Fprintln(os.Stderr, "mochi:", err)
		os.Exit(1)
	}
}

func serve(listen, store string, sync bool) error {
	if listen == "" {
		return errors.New("no -listen address")
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	server := mqtt.New(&mqtt.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err := server.AddHook(new(auth.AllowHook), nil); err != nil {
		return err
	}
	if store != "" {
		options := &bolt.Options{Path: store, Options: &bbolt.Options{Timeout: time.Second, NoSync: !sync}}
		if err := server.AddHook(new(bolt.Hook), options); err != nil {
			return err
		}
	}
	if err := server.AddListener(listeners.NewTCP(listeners.Config{ID: "mqtt", Address: listen})); err != nil {
		return err
	}
	if err := server.Serve(); err != nil {
		return err
	}
	<-stop
	return server.Close()
}
