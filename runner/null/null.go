package null

import (
	"context"
	"net"
	"time"
)

// Config is how the broker answers. The zero value answers at once.
type Config struct {
	Delay time.Duration // between the arrival of a packet and its answer
}

// Serve accepts connections on l until ctx ends, then closes l and all of them. It returns nil when ctx ended it.
func Serve(ctx context.Context, l net.Listener, c Config) error { return nil }
