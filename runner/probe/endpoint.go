package probe

import (
	"errors"
	"net"

	"inflight/runner/transport"
)

// Endpoint is where the broker listens, and what a client has to show.
type Endpoint = transport.Endpoint

// innermost strips the net package's wrapping, which names the address once more.
func innermost(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}
