package target

import (
	"net"
	"strconv"
	"strings"
	"testing"
)

func TestChoosePorts(t *testing.T) {
	seen := map[int]bool{}
	for slot := 1; slot <= 2; slot++ {
		ports, err := choosePorts(slot, 3, []string{"mqtt", "cluster"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range ports {
			for name, port := range node {
				if port < lowPort || port > highPort || port%slotPorts != slot || seen[port] {
					t.Errorf("slot %d: %s got port %d", slot, name, port)
				}
				seen[port] = true
			}
		}
	}
}

func TestChoosePortsFrom(t *testing.T) {
	l, err := drawPort(0)
	if err != nil {
		t.Fatal(err)
	}
	first := l.Addr().(*net.TCPAddr).Port
	if _, err := choosePorts(1, 1, []string{"mqtt"}, first); err == nil || !strings.Contains(err.Error(), "port "+strconv.Itoa(first)+", for node n1, is in use") {
		t.Errorf("got %v", err)
	}
	l.Close()
	ports, err := choosePorts(1, 1, []string{"mqtt", "cluster"}, first)
	if err != nil || ports[0]["mqtt"] != first || ports[0]["cluster"]%slotPorts != 1 {
		t.Errorf("got %v, %v", ports, err)
	}
}
