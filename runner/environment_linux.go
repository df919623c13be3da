package runner

import (
	"os"
	"strings"

	"github.com/prometheus/procfs"
)

// hardware reads the processor's model and the kernel's release.
func hardware() (cpu, kernel string) {
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = "Linux " + strings.TrimSpace(string(release))
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return "", kernel
	}
	info, err := fs.CPUInfo()
	if err != nil || len(info) == 0 {
		return "", kernel
	}
	return strings.Join(strings.Fields(info[0].ModelName), " "), kernel
}
