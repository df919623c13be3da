package target

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// portTries is how often a broker is started with fresh ports when one was taken between choosing and using it.
const portTries = 4

// Ports are chosen from lowPort to highPort: below the range from which systems take the ports of outgoing connections
// and of listeners on port 0 (32768 on Linux, 49152 elsewhere), so that only who asks for a port by number can take it
// before its broker listens, some seconds later. Brokers of different slots, which start side by side, choose from
// different ports: those that leave the slot's number when divided by slotPorts.
const (
	lowPort, highPort = 10_240, 32_767
	slotPorts         = 8
	portDraws         = 1_000 // to find one that is free
)

// drawPort listens on a free port of the slot.
func drawPort(slot int) (net.Listener, error) {
	var err error
	for range portDraws {
		port := lowPort + rand.IntN((highPort-lowPort+1)/slotPorts)*slotPorts + slot%slotPorts
		var l net.Listener
		if l, err = net.Listen("tcp4", net.JoinHostPort(loopback, strconv.Itoa(port))); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no free port from %d to %d after %d draws: %w", lowPort, highPort, portDraws, err)
}

// choosePorts gives each of nodes its ports by name. They were free a moment ago: all are listened on at once, so that no
// two are the same, and let go. first, if not 0, is the port that the first node has under the first name; the next nodes
// have the ports that follow.
func choosePorts(slot, nodes int, names []string, first int) ([]map[string]int, error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	ports := make([]map[string]int, nodes)
	for i := range ports {
		ports[i] = make(map[string]int, len(names))
		for j, name := range names {
			l, err := choosePort(slot, i, j, first)
			if err != nil {
				return nil, err
			}
			held = append(held, l)
			ports[i][name] = l.Addr().(*net.TCPAddr).Port
		}
	}
	return ports, nil
}

// choosePort listens on the port with number name of the node with number node.
func choosePort(slot, node, name, first int) (net.Listener, error) {
	if first == 0 || name != 0 {
		return drawPort(slot)
	}
	wanted := first + node
	l, err := net.Listen("tcp4", net.JoinHostPort(loopback, strconv.Itoa(wanted)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("port %d, for node n%d, is in use (stop what listens there, or leave port= out: free ports are then chosen)", wanted, node+1)
	case err != nil:
		return nil, fmt.Errorf("use port %d for node n%d: %w (leave port= out: free ports are then chosen)", wanted, node+1, err)
	}
	return l, nil
}

// portTaken reports whether a node died because one of its ports was another's by then.
func portTaken(err error) bool {
	var dead *DeadError
	if !errors.As(err, &dead) {
		return false
	}
	for _, line := range dead.LastLines {
		line = strings.ToLower(line)
		if strings.Contains(line, "address already in use") || strings.Contains(line, "only one usage of each socket address") {
			return true
		}
	}
	return false
}
