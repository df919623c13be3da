package target

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// portTries is how often a broker is started with fresh ports when one was taken between choosing and using it.
const portTries = 4

// choosePorts gives each of nodes its ports by name. They were free a moment ago: all are listened on at once, so that no
// two are the same, and let go. first, if not 0, is the port that the first node has under the first name; the next nodes
// have the ports that follow.
func choosePorts(nodes int, names []string, first int) ([]map[string]int, error) {
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
			wanted := 0
			if first != 0 && j == 0 {
				wanted = first + i
			}
			l, err := net.Listen("tcp4", net.JoinHostPort(loopback, strconv.Itoa(wanted)))
			switch {
			case errors.Is(err, syscall.EADDRINUSE) && wanted != 0:
				return nil, fmt.Errorf("port %d, for node n%d, is in use (stop what listens there, or leave port= out: free ports are then chosen)", wanted, i+1)
			case err != nil && wanted != 0:
				return nil, fmt.Errorf("use port %d for node n%d: %w (leave port= out: free ports are then chosen)", wanted, i+1, err)
			case err != nil:
				return nil, fmt.Errorf("find a free port: %w", err)
			}
			held = append(held, l)
			ports[i][name] = l.Addr().(*net.TCPAddr).Port
		}
	}
	return ports, nil
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
