package machine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
)

func readFacts(dirs []string) facts {
	f := facts{files: -1, load: -1, ports: -1}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		f.files = int64(min(limit.Cur, 1<<40)) // no limit is the highest number
	}
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if load, err := proc.LoadAvg(); err == nil {
			f.load = load.Load1
		}
	}
	if text, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"); err == nil {
		f.governor = strings.TrimSpace(string(text))
	}
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if ends := strings.Fields(string(text)); len(ends) == 2 {
			low, lowErr := strconv.Atoi(ends[0])
			high, highErr := strconv.Atoi(ends[1])
			if lowErr == nil && highErr == nil {
				f.ports = high - low + 1
			}
		}
	}
	for _, dir := range dirs {
		var fs syscall.Statfs_t
		if at := existing(dir); syscall.Statfs(at, &fs) == nil {
			f.disk = append(f.disk, disk{dir: dir, free: int64(fs.Bavail) * fs.Bsize})
		}
	}
	return f
}

// existing is dir, or the nearest directory above it that is there.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return dir
		}
		dir = up
	}
}
