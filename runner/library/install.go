package library

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed mqttjs/package.json mqttjs/package-lock.json mqttjs/driver.cjs
var mqttjs embed.FS

// Files of mqttjs.
const (
	packageFile = "package.json"
	lockFile    = "package-lock.json"
	driverFile  = "driver.cjs"
)

// oldestNode is the first major version of Node.js that the driver and MQTT.js run on.
const oldestNode = 18

// howToInstall is for people.
const howToInstall = "apt-get install nodejs npm, or https://nodejs.org"

// tools are the programs that client mqttjs needs.
type tools struct{ node, npm string }

// findNode finds the tools, or says which one is missing.
func findNode() (tools, error) {
	var found tools
	for name, to := range map[string]*string{"node": &found.node, "npm": &found.npm} {
		path, err := exec.LookPath(name)
		if err != nil {
			return found, fmt.Errorf("client mqttjs needs Node.js %d or newer and npm: %s is not in PATH (install them: %s)", oldestNode, name, howToInstall)
		}
		*to = path
	}
	return found, nil
}

// shortTime bounds a program that is only asked for its version.
const shortTime = 20 * time.Second

// checkNode asks node for its version.
func checkNode(ctx context.Context, program string) error {
	ctx, cancel := context.WithTimeout(ctx, shortTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", program, err)
	}
	version := strings.TrimSpace(string(out))
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldestNode {
		return fmt.Errorf("%s is Node.js %.20q, and %d or newer is needed (install it: %s)", program, version, oldestNode, howToInstall)
	}
	return nil
}

// install makes MQTT.js ready below cacheDir. It is installed once for each lock file; several processes may do so at the same
// time, and one of them wins.
func install(ctx context.Context, cacheDir string, talk func(format string, args ...any)) (*node, error) {
	found, err := findNode()
	if err == nil {
		err = checkNode(ctx, found.node)
	}
	if err != nil {
		return nil, err
	}
	version, err := lockedVersion()
	if err != nil {
		return nil, err
	}
	lock, err := mqttjs.ReadFile("mqttjs/" + lockFile)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(lock)
	dir := filepath.Join(cacheDir, "clients", "mqttjs-"+version+"-"+hex.EncodeToString(sum[:4]))
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		talk("installing MQTT.js %s into %s", version, dir)
		if err := npm(ctx, found.npm, dir); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, fmt.Errorf("look for MQTT.js: %w", err)
	}
	return &node{program: found.node, dir: dir, version: version}, nil
}

// lockedVersion is that of MQTT.js in the lock file.
func lockedVersion() (string, error) {
	data, err := mqttjs.ReadFile("mqttjs/" + lockFile)
	if err != nil {
		return "", err
	}
	var lock struct {
		Packages map[string]struct{ Version string }
	}
	if err := json.Unmarshal(data, &lock); err != nil {
		return "", fmt.Errorf("read mqttjs/%s: %w", lockFile, err)
	}
	version := lock.Packages["node_modules/mqtt"].Version
	if version == "" {
		return "", fmt.Errorf("mqttjs/%s has no mqtt", lockFile)
	}
	return version, nil
}

// npm installs what the lock file says into dir, which appears only when it is complete.
func npm(ctx context.Context, program, dir string) (err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make the cache directory: %w", err)
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), "install-")
	if err != nil {
		return fmt.Errorf("make the cache directory: %w", err)
	}
	defer func() {
		if removeErr := os.RemoveAll(temporary); err == nil {
			err = removeErr
		}
	}()
	for _, name := range []string{packageFile, lockFile} {
		data, err := mqttjs.ReadFile("mqttjs/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(temporary, name), data, 0o644)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	cmd := exec.CommandContext(ctx, program, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
	cmd.Dir = temporary
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("npm ci: %w (is the npm registry reachable? npm config get registry)%s", err, indented(out.Bytes()))
	}
	if err := os.Rename(temporary, dir); err != nil {
		if _, statErr := os.Stat(dir); statErr == nil {
			return nil // another process was faster
		}
		return fmt.Errorf("put MQTT.js into place: %w", err)
	}
	return nil
}

// maxLines is how much of what a program printed an error shows.
const maxLines = 10

// indented is the end of what a program printed, below a sentence; "" for nothing.
func indented(text []byte) string {
	var lines []string
	for line := range strings.Lines(strings.ToValidUTF8(string(text), "\uFFFD")) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "\n    " + strings.Join(lines[max(0, len(lines)-maxLines):], "\n    ")
}
