package main

import (
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"inflight/runner/null"
)

// newNullCommand serves the null broker. It is hidden because nobody starts it by hand: the target null does.
func newNullCommand() *cobra.Command {
	var listen string
	var c null.Config
	cmd := &cobra.Command{
		Use:    "null",
		Short:  "Serve a broker that acknowledges at once, stores nothing and delivers nothing",
		Hidden: true,
		Args:   arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.Delay < 0 {
				return usagef("flag --delay: %v is negative", c.Delay)
			}
			if err := c.Validate(); err != nil {
				return usage(err)
			}
			l, err := (&net.ListenConfig{}).Listen(cmd.Context(), "tcp", listen)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "listening on %s\n", l.Addr())
			return null.Serve(cmd.Context(), l, c)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:1883", "`HOST:PORT` to listen on; port 0 takes a free one")
	cmd.Flags().DurationVar(&c.Delay, "delay", 0, "`TIME` between a packet's arrival and its answer, as 5ms")
	cmd.Flags().DurationVar(&c.Stall, "stall", 0, "`TIME` at the end of every period in which nothing is read or answered")
	cmd.Flags().DurationVar(&c.Every, "every", 5*time.Second, "`PERIOD` of the stalls")
	return cmd
}
