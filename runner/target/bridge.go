package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"inflight/runner/transport"
)

// bridgeTimeout bounds how long a bridge tries to reach the broker for one connection.
const bridgeTimeout = 10 * time.Second

// descriptorsPerBridged is how many descriptors of this process a connection takes that goes over a bridge: the client's, the
// bridge's towards the client, and the bridge's towards the broker.
const descriptorsPerBridged = 3

// bridge gives a broker that speaks TLS or WebSocket an address of plain TCP in this process. The load generator writes
// sockets raw, without ever waiting in a write, which neither TLS nor WebSocket allow; a bridge keeps that and adds its hop
// to every latency, some tens of microseconds, and the encryption to the generator's processor time.
type bridge struct {
	endpoint transport.Endpoint
	listener net.Listener
	ctx      context.Context // of all connections
	cancel   context.CancelFunc
	group    sync.WaitGroup
}

// newBridge tries the endpoint once, so that what is wrong with it is said in its own words, and listens.
func newBridge(ctx context.Context, e transport.Endpoint) (*bridge, error) {
	nc, err := e.Dial(ctx, bridgeTimeout)
	if err != nil {
		return nil, err
	}
	_ = nc.Close()
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for the bridge to %v: %w", e, err)
	}
	b := &bridge{endpoint: e, listener: l}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.group.Go(b.serve)
	return b, nil
}

func (b *bridge) addr() string { return b.listener.Addr().String() }

// close ends every connection and returns once nothing of the bridge is left.
func (b *bridge) close() error {
	b.cancel()
	err := b.listener.Close()
	b.group.Wait()
	return err
}

func (b *bridge) serve() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			if b.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors, most likely: some may be free again soon.
			time.Sleep(10 * time.Millisecond)
			continue
		}
		b.group.Go(func() { b.carry(client) })
	}
}

// carry copies both ways until either side ends; the other then ends as well, behind what was copied.
func (b *bridge) carry(client net.Conn) {
	defer client.Close()
	broker, err := b.endpoint.Dial(b.ctx, bridgeTimeout)
	if err != nil {
		return // the client sees a connection that ends before its CONNACK
	}
	var once sync.Once
	end := func() {
		once.Do(func() {
			_ = client.Close()
			_ = broker.Close()
		})
	}
	defer context.AfterFunc(b.ctx, end)()
	defer end()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, broker)
		end()
	})
	_, _ = io.Copy(broker, client)
	end()
	back.Wait()
}
