package target

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// build returns the path of the broker built from its module at version, building it if the cache has none.
//
// The build goes to a directory of its own beside the final one, which then takes its place by rename: a build that was
// interrupted leaves nothing that looks finished, and of several builds at once the first wins.
func build(ctx context.Context, about *description, version string, options Options) (string, error) {
	source := about.Source.Go
	if options.CacheDir == "" {
		return "", errors.New("no cache directory to build in")
	}
	binary := source.Binary
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	cache, err := filepath.Abs(options.CacheDir) // for GOBIN
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w", err)
	}
	parent := filepath.Join(cache, "targets", about.Kind)
	final := filepath.Join(parent, source.cacheKey(version))
	path := filepath.Join(final, binary)
	if runnable(path) {
		return path, nil
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		return "", fmt.Errorf("no go command in PATH to build %s@%s with (install Go from https://go.dev/dl, or measure a broker that is already running: tcp://host:port)", source.Package, version)
	}
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return "", fmt.Errorf("make the cache directory: %w", err)
	}
	temp, err := os.MkdirTemp(parent, ".building-")
	if err != nil {
		return "", fmt.Errorf("make the build directory: %w", err)
	}
	defer os.RemoveAll(temp)
	options.Talk("building %s %s, once, %s", about.Kind, version, orElse(source.Takes, "about a minute"))
	start := time.Now()
	if source.Library {
		err = goBuild(ctx, tool, temp, about, version)
	} else {
		err = goInstall(ctx, tool, temp, about, version)
	}
	if err != nil {
		return "", err
	}
	if !runnable(filepath.Join(temp, binary)) {
		return "", fmt.Errorf("the build of %s@%s made no program called %s", source.Package, version, binary)
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return "", fmt.Errorf("open the build to others: %w", err)
	}
	if err := os.Rename(temp, final); err != nil && !runnable(path) {
		return "", fmt.Errorf("move the build into the cache: %w", err)
	}
	options.Talk("built %s %s in %v: %s", about.Kind, version, time.Since(start).Round(time.Second), path)
	return path, nil
}

// cacheKey names a build: the same source built by another Go release, or for another system, is another program, and so
// is a library in another command.
func (g *goSource) cacheKey(version string) string {
	key := version + "-" + runtime.GOOS + "-" + runtime.GOARCH + "-" + runtime.Version()
	if g.Library {
		key += fmt.Sprintf("-%.8x", sha256.Sum256(g.program))
	}
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\: `, r) {
			return '_'
		}
		return r
	}, key)
}

func runnable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() > 0
}

func goInstall(ctx context.Context, tool, dir string, about *description, version string) error {
	return runGo(ctx, tool, dir, about, version, "install", about.Source.Go.Package+"@"+version)
}

// goBuild builds the command around a library, in a module of its own that requires the library's version and is gone
// when the program is there.
func goBuild(ctx context.Context, tool, dir string, about *description, version string) error {
	source := about.Source.Go
	module := filepath.Join(dir, "module")
	files := map[string][]byte{
		"go.mod":  fmt.Appendf(nil, "module inflight-target/%s\n\ngo 1.21\n\nrequire %s %s\n", about.Kind, source.Package, version),
		"main.go": source.program,
	}
	if err := os.Mkdir(module, 0o755); err != nil {
		return fmt.Errorf("make the build directory: %w", err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(module, name), data, 0o644); err != nil {
			return fmt.Errorf("write the command around %s: %w", source.Package, err)
		}
	}
	binary := filepath.Join(dir, source.Binary)
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	// The file is named because its build constraint keeps it out of inflight's own build.
	if err := runGo(ctx, tool, module, about, version, "build", "-mod=mod", "-o", binary, "main.go"); err != nil {
		return err
	}
	return os.RemoveAll(module)
}

func runGo(ctx context.Context, tool, dir string, about *description, version string, args ...string) error {
	what := args[0] + " " + about.Source.Go.Package + "@" + version
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Dir = dir // outside of any other module
	cmd.Env = buildEnvironment(os.Environ(), dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	ownGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) } // the compilers too
	cmd.WaitDelay = 2 * time.Second
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("go %s: %w", what, context.Cause(ctx))
	}
	return explainBuild(about, version, out.Bytes(), err)
}

// buildEnvironment is env without what would change the build: the flags of the build that inflight itself is part of,
// a workspace, and another system to build for.
func buildEnvironment(env []string, gobin string) []string {
	dropped := []string{"GOFLAGS", "GOBIN", "GOWORK", "GOOS", "GOARCH", "GO111MODULE", "GOEXPERIMENT", "PWD"}
	var kept []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if !containsFold(dropped, name) {
			kept = append(kept, v)
		}
	}
	// GOFLAGS is not left empty: the go command would then take it from `go env -w`.
	return append(kept, "GOFLAGS=-trimpath", "GOWORK=off", "GO111MODULE=on", "GOBIN="+gobin, "PWD="+gobin)
}

func containsFold(list []string, s string) bool {
	for _, l := range list {
		if strings.EqualFold(l, s) {
			return true
		}
	}
	return false
}

// explainBuild turns what the go command printed into one message with a hint.
func explainBuild(about *description, version string, output []byte, err error) error {
	source := about.Source.Go
	text := string(output)
	contains := func(signs ...string) bool {
		for _, s := range signs {
			if strings.Contains(text, s) {
				return true
			}
		}
		return false
	}
	detail := indent(lastLines(output, errorLines))
	switch {
	case contains("GOPROXY=off", "dial tcp", "no such host", "i/o timeout", "TLS handshake", "connection refused", "connection reset", "network is unreachable"):
		return fmt.Errorf("cannot download %s@%s: the module proxy is not reachable (see: go env GOPROXY)%s", source.Package, version, detail)
	case contains("unknown revision", "not available", "404 Not Found", "410 Gone", "invalid version", "no matching versions", "does not contain package"):
		return fmt.Errorf("%s has no version %s (versions look like %s; known: %s)%s", about.Kind, version, last(source.Known), strings.Join(source.Known, ", "), detail)
	case contains("requires go >=", "toolchain not available"):
		return fmt.Errorf("%s@%s needs a newer Go toolchain than this one (install it from https://go.dev/dl)%s", source.Package, version, detail)
	case contains("no space left on device"):
		return fmt.Errorf("build %s@%s: the disk is full (the build needs about 1 GB in GOCACHE, GOTMPDIR and GOMODCACHE)%s", source.Package, version, detail)
	}
	return fmt.Errorf("build %s@%s: %w%s", source.Package, version, err, detail)
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
