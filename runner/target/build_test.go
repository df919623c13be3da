//go:build unix

package target

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// useFakeGo makes the test binary the go command, and only that one; it returns the file that has a line for each build.
func useFakeGo(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, marks := t.TempDir(), t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "go")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv("FAKE_MARKS", marks)
	t.Setenv("GOFLAGS", "-mod=mod") // as inside `go run -mod=mod`
	return filepath.Join(marks, "builds")
}

func natsSpec(t *testing.T, version string) *Spec {
	t.Helper()
	spec, err := Parse("nats-server@" + version)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestBuildIsKept(t *testing.T) {
	builds := useFakeGo(t)
	cache := t.TempDir()
	var said []string
	for range 2 {
		p, err := Prepare(t.Context(), natsSpec(t, "v2.15.3"), Options{CacheDir: cache, Talk: func(format string, _ ...any) { said = append(said, format) }})
		if err != nil {
			t.Fatal(err)
		}
		if p.Version() != "v2.15.3" || !strings.HasPrefix(p.path, cache) {
			t.Errorf("got version %q at %s", p.Version(), p.path)
		}
	}
	log, err := os.ReadFile(builds)
	if want := "github.com/nats-io/nats-server/v2@v2.15.3\n"; err != nil || string(log) != want {
		t.Errorf("built %q (%v), want once %q", log, err, want)
	}
	if len(said) != 2 || !strings.HasPrefix(said[0], "building") || !strings.HasPrefix(said[1], "built") {
		t.Errorf("said %q, want the begin and the end of one build", said)
	}
	// Once built, no toolchain is needed.
	t.Setenv("PATH", t.TempDir())
	if _, err := Prepare(t.Context(), natsSpec(t, "v2.15.3"), Options{CacheDir: cache}); err != nil {
		t.Error(err)
	}
}

// A library is built with the command that is kept beside its description; of the module around it nothing stays.
func TestBuildOfALibrary(t *testing.T) {
	builds := useFakeGo(t)
	spec, err := Parse("mochi@v2.7.9")
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	for range 2 {
		p, err := Prepare(t.Context(), spec, Options{CacheDir: cache})
		if err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(filepath.Dir(p.path))
		if p.Version() != "v2.7.9" || err != nil || len(left) != 1 {
			t.Errorf("got version %q at %s, beside %v (%v)", p.Version(), p.path, left, err)
		}
	}
	log, err := os.ReadFile(builds)
	if want := "github.com/mochi-mqtt/server/v2 v2.7.9\n"; err != nil || string(log) != want {
		t.Errorf("built %q (%v), want once %q", log, err, want)
	}
	g := *spec.about.Source.Go
	before := g.cacheKey("v2.7.9")
	if g.program = []byte("package main // changed"); g.cacheKey("v2.7.9") == before {
		t.Error("another command around the library is not built again")
	}
}

func TestConcurrentBuilds(t *testing.T) {
	useFakeGo(t)
	cache := t.TempDir()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			p, err := Prepare(t.Context(), natsSpec(t, "v2.15.3"), Options{CacheDir: cache})
			if err != nil {
				t.Error(err)
			} else if p.Version() != "v2.15.3" {
				t.Errorf("got version %q", p.Version())
			}
		})
	}
	all.Wait()
	entries, err := os.ReadDir(filepath.Join(cache, "targets", "nats-server"))
	if err != nil || len(entries) != 1 {
		t.Errorf("in the cache: %v (%v), want one build and nothing half done", entries, err)
	}
}

func TestBuildFails(t *testing.T) {
	useFakeGo(t)
	cache := t.TempDir()
	_, err := Prepare(t.Context(), natsSpec(t, "v2.99.0"), Options{CacheDir: cache})
	if want := "nats-server has no version v2.99.0 (versions look like v2.15.3; known: v2.14.10"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if left, _ := os.ReadDir(filepath.Join(cache, "targets", "nats-server")); len(left) != 0 {
		t.Errorf("a failed build leaves %v", left)
	}
	t.Setenv("PATH", t.TempDir())
	_, err = Prepare(t.Context(), natsSpec(t, "v2.15.3"), Options{CacheDir: cache})
	if want := "no go command in PATH to build github.com/nats-io/nats-server/v2@v2.15.3 with (install Go from https://go.dev/dl"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestBuildCancelled(t *testing.T) {
	useFakeGo(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("interrupted")
	time.AfterFunc(20*time.Millisecond, func() { cancel(stop) })
	if _, err := Prepare(ctx, natsSpec(t, "v2.15.3"), Options{CacheDir: t.TempDir()}); !errors.Is(err, stop) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cause %v", err, stop)
	}
}

// What the real go command says, for each reason that there is a hint for.
func TestExplainBuild(t *testing.T) {
	about, err := known().describe("nats-server")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ why, output, want string }{
		{"no such version, from the proxy", "go: github.com/nats-io/nats-server/v2@v2.15.9: invalid version: unknown revision v2.15.9", "nats-server has no version v2.15.9"},
		{"no such version, from a proxy that does not list it", "reading https://proxy/v2.15.9.info: 403 Forbidden\n\tserver response: This module version is not available.", "nats-server has no version v2.15.9"},
		{"no network", `Get "https://proxy/v2.15.9.info": dial tcp: lookup proxy: no such host`, "the module proxy is not reachable"},
		{"no network allowed", "module lookup disabled by GOPROXY=off", "the module proxy is not reachable"},
		{"old toolchain", "requires go >= 1.99 (running go 1.26; GOTOOLCHAIN=local)", "needs a newer Go toolchain"},
		{"full disk", "write /cache/x: no space left on device", "the disk is full"},
		{"anything else", "compile: internal compiler error", "exit status 1"},
	} {
		got := explainBuild(about, "v2.15.9", []byte(tt.output), errors.New("exit status 1")).Error()
		if !strings.Contains(got, tt.want) || !strings.Contains(got, strings.TrimSpace(lastLines([]byte(tt.output), 1)[0])) {
			t.Errorf("%s: got %q\nwant %q and what the go command said in it", tt.why, got, tt.want)
		}
	}
}

func TestBuildEnvironment(t *testing.T) {
	got := buildEnvironment([]string{"HOME=/h", "GOFLAGS=-mod=mod", "GOOS=plan9", "GOWORK=/w", "GOBIN=/b", "GOPROXY=https://p", "GOTOOLCHAIN=auto"}, "/cache")
	for _, w := range []string{"HOME=/h", "GOPROXY=https://p", "GOTOOLCHAIN=auto", "GOFLAGS=-trimpath", "GOWORK=off", "GOBIN=/cache"} {
		if !slices.Contains(got, w) {
			t.Errorf("no %s in %v", w, got)
		}
	}
	for _, g := range got {
		if strings.HasPrefix(g, "GOOS=") || strings.Contains(g, "-mod") {
			t.Errorf("%s reaches the build", g)
		}
	}
}

func TestLastLines(t *testing.T) {
	if got := lastLines([]byte("a\n\nb \r\nc\xff"), 2); !slices.Equal(got, []string{"b", "c\uFFFD"}) {
		t.Errorf("got %q", got)
	}
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("of another start\nmine\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if got := tail(path, int64(len("of another start\n"))); !slices.Equal(got, []string{"mine"}) {
		t.Errorf("got %q, want only what this start wrote", got)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("x", maxTail)+"\nend\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if got := tail(path, 0); len(got) == 0 || got[len(got)-1] != "end" || len(got[0]) > maxTail {
		t.Errorf("got %d lines of a long log", len(got))
	}
}

// Another build of the reference broker is a program like any other: it is asked for its version, and must be there.
func TestAnotherBuild(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho inflight 0.0.9-base\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	prepare := func(target string) (*Program, error) {
		spec, err := Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		return Prepare(t.Context(), spec, Options{Self: "/nonexistent"})
	}
	p, err := prepare("reference?store=memory&binary=" + path)
	if err != nil || p.Version() != "0.0.9-base" || p.path != path {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := prepare("reference?binary=" + path + "x"); err == nil || !strings.Contains(err.Error(), "it is another build of inflight") {
		t.Errorf("one that is not there: %v", err)
	}
}
