package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inflight/runner/result"
)

// Key tells the machine of an environment from others: its name, processor, cores, kernel and Go's share of them, or the
// CPUs that the generator is kept to. A calibration made under another kernel or with other limits is not this machine's.
func Key(e *result.Environment) string {
	host, _ := os.Hostname() // without a name the rest must do
	share := strconv.Itoa(e.GOMAXPROCS)
	if e.Pinning != nil && e.Pinning.Generator != "" {
		share = "cpus " + e.Pinning.Generator // Go's share follows it
	}
	sum := sha256.Sum256([]byte(fmt.Sprintf("%s|%s|%d|%s|%s|%s|%s", host, e.CPU, e.Cores, e.Kernel, e.OS, e.Arch, share)))
	return hex.EncodeToString(sum[:6])
}

// clockReadings is how often Clock reads; a clock that has not moved by then is coarser than a millisecond.
const clockReadings = 1 << 16

// Clock is the least time by which two readings of the clock differ; 0 when it never moved.
func Clock() time.Duration {
	least := time.Duration(0)
	last := time.Now()
	for range clockReadings {
		now := time.Now()
		if d := now.Sub(last); d > 0 && (least == 0 || d < least) {
			least = d
		}
		last = now
	}
	return least
}

// Limits of Loopback.
const (
	roundTrips    = 5_000
	roundTripWait = 5 * time.Second
)

// Loopback measures the round trip of a byte to another goroutine over TCP on 127.0.0.1: what no broker can be faster than.
func Loopback(ctx context.Context) (*hdrhistogram.Histogram, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("measure the loopback: %w", err)
	}
	defer l.Close()
	echoed := make(chan error, 1)
	go func() { echoed <- echo(l) }()
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("measure the loopback: %w", err), l.Close(), <-echoed)
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	h := hdrhistogram.New(1, int64(roundTripWait), 3)
	b := []byte{0}
	for range roundTrips {
		_ = nc.SetDeadline(time.Now().Add(roundTripWait))
		sent := time.Now()
		if _, err = nc.Write(b); err == nil {
			_, err = nc.Read(b)
		}
		if err != nil {
			break
		}
		_ = h.RecordValue(int64(time.Since(sent))) // the deadline bounds it
	}
	if closeErr := nc.Close(); err == nil && ctx.Err() == nil {
		err = closeErr
	}
	if echoErr := <-echoed; err == nil {
		err = echoErr
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("measure the loopback: %w", err)
	}
	return h, nil
}

// echo sends back what one connection sends, until it ends.
func echo(l net.Listener) error {
	nc, err := l.Accept()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	if err != nil {
		return err
	}
	defer nc.Close()
	b := make([]byte, 16)
	for {
		n, err := nc.Read(b)
		if err != nil {
			return nil // the other side has what it wanted
		}
		if _, err := nc.Write(b[:n]); err != nil {
			return err
		}
	}
}

// path is where the calibration of a machine is stored below a cache directory.
func path(dir, key string) string { return filepath.Join(dir, "calibration-"+key+".json") }

// Store writes a calibration below dir, which is made, and returns its file.
func Store(dir string, c *result.Calibration) (string, error) {
	data, err := json.MarshalIndent(c, "", "  ")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	file := path(dir, c.Machine)
	if err == nil {
		err = result.WriteFile(file, append(data, '\n'))
	}
	if err != nil {
		return "", fmt.Errorf("store the calibration: %w", err)
	}
	return file, nil
}

// Load reads the calibration of a machine; nil if there is none.
func Load(dir, key string) (*result.Calibration, error) {
	data, err := os.ReadFile(path(dir, key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var c result.Calibration
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err == nil && c.Machine != key {
		err = fmt.Errorf("%s is of another machine", path(dir, key))
	}
	if err != nil {
		return nil, fmt.Errorf("read the calibration of this machine (inflight calibrate makes it anew): %w", err)
	}
	return &c, nil
}
