package node

import (
	"strings"
	"testing"
)

// Two nodes never share a directory; the second one is told, and may have it once the first is gone.
func TestDirectoryOfAnotherNode(t *testing.T) {
	cfg := Config{Name: "n1", StoreDir: t.TempDir()}
	first, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Start(t.Context(), cfg)
	if err == nil {
		second.Stop()
		t.Fatal("a second node on the directory of the first")
	}
	if !strings.Contains(err.Error(), cfg.StoreDir+" is in use by another broker") || !strings.Contains(err.Error(), "--store-dir") {
		t.Errorf("%v", err)
	}
	first.Stop()
	third, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	third.Stop()
}
