package report

import (
	"io"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"inflight/runner/result"
)

// Prometheus writes r, judged, in the Prometheus text format, for a textfile collector or a push gateway: gauges of the cells,
// the comparisons and the run, in seconds and bytes. What was not measured has no sample.
func Prometheus(w io.Writer, r *result.Result) error {
	r = judged(r)
	p := promText{registry: prometheus.NewRegistry(), vectors: map[string]*prometheus.GaugeVec{}}
	p.set("run_info", "The run: tool, scenario and start.", 1,
		"tool", r.Tool.Name, "version", r.Tool.Version, "scenario", r.Scenario.Name, "started", r.Started.UTC().Format("2006-01-02T15:04:05Z"))
	p.set("run_partial", "1 if the run did not end.", truth(r.Partial))
	for _, a := range r.Arms {
		p.set("arm_info", "An arm of the run.", 1, "arm", a.Name, "target", a.Label(), "version", a.Version, "durability", a.Durability)
	}
	for i := range r.Cells {
		p.cell(&r.Cells[i])
	}
	for i := range r.Searches {
		p.search(&r.Searches[i])
	}
	for i := range r.Comparisons {
		p.comparison(&r.Comparisons[i])
	}
	if p.err != nil {
		return p.err
	}
	families, err := p.registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return err
		}
	}
	return nil
}

// promText gathers samples into one gauge vector per name.
type promText struct {
	registry *prometheus.Registry
	vectors  map[string]*prometheus.GaugeVec
	err      error // the first
}

// set adds a sample; labels are names and values in turn, and the names are the same at each call for a metric.
func (p *promText) set(name, help string, value float64, labels ...string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	v := p.vectors[name]
	if v == nil {
		v = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "inflight", Name: name, Help: help}, names)
		p.vectors[name] = v
		if err := p.registry.Register(v); err != nil && p.err == nil {
			p.err = err
		}
	}
	g, err := v.GetMetricWithLabelValues(values...)
	if err != nil {
		if p.err == nil {
			p.err = err
		}
		return
	}
	g.Set(value)
}

func (p *promText) cell(c *result.Cell) {
	labels := []string{
		"arm", c.Arm, "pass", strconv.Itoa(c.Pass), "qos", strconv.Itoa(c.QoS), "window", strconv.Itoa(c.Window),
		"connections", strconv.Itoa(c.Connections), "payload", strconv.Itoa(c.Payload), "control", strconv.FormatBool(c.Control),
		"rate", strconv.FormatFloat(c.RatePerS, 'f', -1, 64), "rate_ramp", c.Ramp, "payload_sizes", c.Sizes,
	}
	p.set("cell_throughput_messages_per_second", "Acknowledged exchanges over the measured time.", c.ThroughputPerS, labels...)
	p.set("cell_messages", "Exchanges acknowledged within the measured time.", float64(c.Messages), labels...)
	p.set("cell_incorrect", "1 if the broker broke order or exactly once: the other numbers do not count.", truth(c.Incorrect()), labels...)
	p.set("cell_order_violations", "Acknowledgements out of order.", float64(c.Order.Violations), labels...)
	if c.RatePerS > 0 {
		p.set("cell_late_messages", "Of an open loop: written behind their instant.", float64(c.Late), labels...)
		p.set("cell_missed_messages", "Of an open loop: due within the measured time and never written in it.", float64(c.Missed), labels...)
	}
	if c.PayloadBytesPerS != nil {
		p.set("cell_payload_bytes_per_second", "Payloads of the acknowledged messages.", *c.PayloadBytesPerS, labels...)
	}
	if c.RSSPeak != nil {
		p.set("cell_rss_peak_bytes", "Highest resident set of any node so far in the pass.", float64(*c.RSSPeak), labels...)
	}
	if c.CPUSeconds != nil {
		p.set("cell_cpu_seconds", "Processor time of all nodes.", *c.CPUSeconds, labels...)
	}
	for _, m := range []struct {
		name, help string
		value      *float64
	}{
		{"cell_cpu_seconds_per_1000_messages", "Processor time of all nodes for 1,000 acknowledged messages.", c.CPUPer1000},
		{"cell_bytes_per_queued_message", "Growth of the resident sets for each message of the longest queue.", c.BytesPerQueued},
	} {
		if m.value != nil {
			p.set(m.name, m.help, *m.value, labels...)
		}
	}
	for i := range c.Nodes {
		p.process(&c.Nodes[i], append(labels, "process", c.Nodes[i].Name))
	}
	if c.Generator != nil {
		p.process(c.Generator, append(labels, "process", "generator"))
	}
	if l := c.Ledger; l != nil {
		for _, n := range []struct {
			name  string
			value int64
		}{{"published", l.Published}, {"lost", l.Lost}, {"duplicated", l.Duplicated}, {"reordered", l.Reordered}, {"corrupt", l.Corrupt}} {
			p.set("cell_ledger_messages", "Of the verification block.", float64(n.value), append(labels, "account", n.name)...)
		}
	}
	for _, d := range []struct {
		name string
		of   *result.Distribution
	}{
		{"ack_service", c.Latency.AckService},
		{"ack_response", c.Latency.AckResponse},
		{"publish_to_pubrec", c.Latency.Receive},
		{"pubrel_to_pubcomp", c.Latency.Release},
		{"fence", c.Latency.Fence},
		{"end_to_end", c.Latency.EndToEnd},
	} {
		if d.of == nil {
			continue
		}
		for _, q := range []struct {
			name  string
			value *int64
		}{{"0.5", d.of.P50}, {"0.9", d.of.P90}, {"0.99", d.of.P99}, {"0.999", d.of.P999}, {"1", &d.of.Max}} {
			if q.value != nil {
				p.set("cell_latency_seconds", "Quantiles of a latency; 1 is the highest.", float64(*q.value)/1e9, append(labels, "latency", d.name, "quantile", q.name)...)
			}
		}
	}
}

// process is what a node of the broker, or the load generator, used.
func (p *promText) process(n *result.Node, labels []string) {
	for _, m := range []struct {
		name, help string
		value      *float64
	}{
		{"process_cpu_seconds", "Processor time of a process.", n.CPUSeconds},
		{"process_cpu_seconds_per_1000_messages", "Processor time of a process for 1,000 messages of all connections.", n.CPUPer1000},
		{"process_rss_slope_bytes_per_second", "How fast the resident set grew over the longest run.", n.RSSSlope},
		{"process_bytes_per_in_flight", "Growth of the resident set for each exchange of the window of all connections.", n.BytesPerInFlight},
		{"process_rss_peak_bytes", "Highest resident set.", float(n.RSSPeak)},
		{"process_rss_growth_bytes", "Growth of the resident set in a run, at most.", float(n.RSSGrowth)},
		{"process_threads", "Threads, the most seen.", float(n.Threads)},
		{"process_open_fds", "Open descriptors, the most seen.", float(n.FDs)},
		{"process_disk_written_bytes", "Bytes that the process made the disk write.", float(n.DiskBytes)},
		{"process_write_calls", "System calls that write, to sockets as well.", float(n.WriteCalls)},
	} {
		if m.value != nil {
			p.set(m.name, m.help, *m.value, labels...)
		}
	}
}

// float is a count as a sample, which may be absent.
func float(n *int64) *float64 {
	if n == nil {
		return nil
	}
	v := float64(*n)
	return &v
}

func (p *promText) search(s *result.Search) {
	labels := []string{
		"arm", s.Arm, "pass", strconv.Itoa(s.Pass), "qos", strconv.Itoa(s.QoS), "window", strconv.Itoa(s.Window),
		"connections", strconv.Itoa(s.Connections), "payload", strconv.Itoa(s.Payload), "payload_sizes", s.Sizes, "limit", s.Limit, "end", s.End,
	}
	if s.Low != nil {
		p.set("search_holds_messages_per_second", "Highest rate at which the limit held.", float64(*s.Low), labels...)
	}
	if s.High != nil {
		p.set("search_breaks_messages_per_second", "Lowest rate at which the limit broke.", float64(*s.High), labels...)
	}
}

func (p *promText) comparison(c *result.Comparison) {
	labels := []string{
		"base", c.Base, "arm", c.Arm, "metric", c.Metric, "qos", strconv.Itoa(c.QoS), "window", strconv.Itoa(c.Window),
		"connections", strconv.Itoa(c.Connections), "payload", strconv.Itoa(c.Payload), "rate", strconv.FormatFloat(c.RatePerS, 'f', -1, 64),
		"rate_ramp", c.Ramp, "payload_sizes", c.Sizes,
	}
	p.set("comparison_ratio", "One arm over the base.", c.Ratio, labels...)
	for _, bound := range []struct {
		name, help string
		value      *float64
	}{
		{"comparison_low", "Lower end of the 95 % interval.", c.Low},
		{"comparison_high", "Upper end of the 95 % interval.", c.High},
		{"comparison_p_holm", "p of a ratio of 1, corrected for all comparisons of the run.", c.PHolm},
	} {
		if bound.value != nil {
			p.set(bound.name, bound.help, *bound.value, labels...)
		}
	}
	p.set("comparison_verdict", "1 for the verdict of a comparison.", 1, append(labels, "verdict", c.Verdict)...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
