package target

import "github.com/prometheus/procfs"

// usage reads what the process has used so far: VmHWM, and user plus system time. A process that is gone has neither.
func usage(pid int) (rssPeak *int64, cpuSeconds *float64) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return nil, nil
	}
	if status, err := p.NewStatus(); err == nil && status.VmHWM > 0 { // a zombie's is 0
		n := int64(status.VmHWM)
		rssPeak = &n
	}
	if stat, err := p.Stat(); err == nil {
		s := stat.CPUTime()
		cpuSeconds = &s
	}
	return rssPeak, cpuSeconds
}
