package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"inflight/runner/result"
)

// csvColumns are those of every row, whatever it is about. Names and units are those of result.json.
func csvColumns() []string {
	head := []string{
		"arm", "target", "pass", "slot", "qos", "window", "connections", "payload_bytes", "control", "throughput_per_s", "messages", "duration_ns",
		"ack_service_count", "ack_service_mean_ns", "ack_service_p50_ns", "ack_service_p90_ns", "ack_service_p99_ns", "ack_service_p999_ns", "ack_service_max_ns",
		"in_flight_requested", "in_flight_achieved_mean", "rss_peak_bytes", "cpu_s", "generator_cpu_s", "order_violations",
		"published", "acknowledged", "delivered", "lost", "duplicated", "reordered", "corrupt", "incorrect",
	}
	for _, name := range []string{"publish_to_pubrec", "pubrel_to_pubcomp", "fence", "ack_response", "end_to_end"} {
		for _, column := range []string{"count", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"} {
			head = append(head, name+"_"+column)
		}
	}
	head = append(head, "class", "rate_per_s", "late", "missed", "subscribers", "delivered_per_s", "disk_bytes_written", "threads", "fds")
	head = append(head, "rate_ramp", "payload_sizes", "payload_bytes_per_s")
	return append(head,
		"rss_slope_bytes_per_s", "rss_growth_bytes", "bytes_per_in_flight", "queued_peak", "bytes_per_queued", "cpu_s_per_1000", "write_calls",
		"record", "limit", "limit_value_ns", "held", "low_per_s", "high_per_s", "end", "generator_fault")
}

// processColumns are those of the load generator, and of each node of the broker, behind its name.
var processColumns = []string{
	"rss_peak_bytes", "rss_slope_bytes_per_s", "rss_growth_bytes", "bytes_per_in_flight", "cpu_s", "cpu_s_per_1000", "disk_bytes_written", "write_calls",
	"threads", "fds",
}

// CSV writes one row per cell, the controls included, under a row of names. The column record says cell there. Searches for the
// highest rate have a row for each trial, at its rate and with what it reached, and behind them one for what they found: search.
// Behind the columns that every file has, those of the load generator and of each node. What was not measured is empty.
func CSV(w io.Writer, r *result.Result) error {
	arms := map[string]result.Arm{}
	for _, a := range r.Arms {
		arms[a.Name] = a
	}
	head, nodes := csvColumns(), 0
	for i := range r.Cells {
		nodes = max(nodes, len(r.Cells[i].Nodes))
	}
	for _, name := range processColumns {
		head = append(head, "generator_process_"+name)
	}
	for n := range nodes {
		head = append(head, fmt.Sprintf("node%d_name", n+1))
		for _, name := range processColumns {
			head = append(head, fmt.Sprintf("node%d_%s", n+1, name))
		}
	}
	rows := [][]string{head}
	for i := range r.Cells {
		rows = append(rows, fill(record(&r.Cells[i], arms[r.Cells[i].Arm]), len(head)))
	}
	column := map[string]int{}
	for i, name := range head {
		column[name] = i
	}
	for i := range r.Searches {
		s := &r.Searches[i]
		for k := range s.Trials {
			rows = append(rows, searchRow(s, &s.Trials[k], arms[s.Arm], column))
		}
		rows = append(rows, searchRow(s, nil, arms[s.Arm], column))
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// fill makes a row as long as the others.
func fill(row []string, columns int) []string {
	return append(row, make([]string, columns-len(row))...)
}

func record(c *result.Cell, arm result.Arm) []string {
	arm.Client = c.Client // a control is loaded through another one
	row := []string{
		c.Arm, arm.Label(), strconv.Itoa(c.Pass), strconv.Itoa(c.Slot), strconv.Itoa(c.QoS), strconv.Itoa(c.Window), strconv.Itoa(c.Connections),
		strconv.Itoa(c.Payload), strconv.FormatBool(c.Control), number(&c.ThroughputPerS), whole(&c.Messages), whole(&c.DurationNS),
	}
	row = append(row, latency(c.Latency.AckService)...)
	row = append(row, strconv.Itoa(c.InFlight.Requested), number(&c.InFlight.AchievedMean), whole(c.RSSPeak), number(c.CPUSeconds), number(c.GeneratorCPU), whole(&c.Order.Violations))
	if l := c.Ledger; l == nil {
		row = append(row, "", "", "", "", "", "", "")
	} else {
		row = append(row, whole(&l.Published), whole(&l.Acknowledged), whole(&l.Delivered), whole(&l.Lost), whole(&l.Duplicated), whole(&l.Reordered), whole(&l.Corrupt))
	}
	row = append(row, strconv.FormatBool(c.Incorrect()))
	for _, d := range []*result.Distribution{c.Latency.Receive, c.Latency.Release, c.Latency.Fence, c.Latency.AckResponse, c.Latency.EndToEnd} {
		row = append(row, latency(d)...)
	}
	row = append(row, c.Class)
	if c.RatePerS > 0 {
		row = append(row, number(&c.RatePerS), whole(&c.Late), whole(&c.Missed))
	} else {
		row = append(row, "", "", "") // a closed loop is neither late nor does it miss
	}
	row = append(row, strconv.Itoa(c.Subscribers), number(c.DeliveredPerS), whole(c.DiskBytesWritten), whole(c.Threads), whole(c.FDs))
	row = append(row, c.Ramp, c.Sizes, number(c.PayloadBytesPerS))
	queued := ""
	if c.QueuedPeak > 0 {
		queued = whole(&c.QueuedPeak)
	}
	row = append(row, number(c.RSSSlope), whole(c.RSSGrowth), number(c.BytesPerInFlight), queued, number(c.BytesPerQueued), number(c.CPUPer1000), whole(c.WriteCalls))
	row = append(row, "cell", "", "", "", "", "", "", "")
	row = append(row, process(c.Generator)...)
	for i := range c.Nodes {
		row = append(append(row, c.Nodes[i].Name), process(&c.Nodes[i])...)
	}
	return row
}

// process is the columns of one process, empty where nothing is known of it.
func process(n *result.Node) []string {
	if n == nil {
		return make([]string, len(processColumns))
	}
	return []string{
		whole(n.RSSPeak), number(n.RSSSlope), whole(n.RSSGrowth), number(n.BytesPerInFlight), number(n.CPUSeconds), number(n.CPUPer1000),
		whole(n.DiskBytes), whole(n.WriteCalls), whole(n.Threads), whole(n.FDs),
	}
}

// searchRow is that of a trial of a search, or of what the search found.
func searchRow(s *result.Search, t *result.Trial, arm result.Arm, column map[string]int) []string {
	row := make([]string, len(column))
	set := func(name, value string) { row[column[name]] = value }
	set("arm", s.Arm)
	set("target", arm.Label())
	set("pass", strconv.Itoa(s.Pass))
	set("qos", strconv.Itoa(s.QoS))
	set("window", strconv.Itoa(s.Window))
	set("connections", strconv.Itoa(s.Connections))
	set("payload_bytes", strconv.Itoa(s.Payload))
	set("payload_sizes", s.Sizes)
	set("control", "false")
	set("limit", s.Limit)
	if t == nil {
		set("record", "search")
		set("end", s.End)
		if s.Low != nil {
			set("low_per_s", strconv.Itoa(*s.Low))
		}
		if s.High != nil {
			set("high_per_s", strconv.Itoa(*s.High))
		}
		return row
	}
	set("record", "trial")
	set("rate_per_s", strconv.Itoa(t.RatePerS))
	set("throughput_per_s", number(&t.ReachedPerS))
	set("duration_ns", whole(&t.DurationNS))
	set("late", whole(&t.Late))
	set("missed", whole(&t.Missed))
	set("limit_value_ns", whole(t.ValueNS))
	set("held", strconv.FormatBool(t.Held))
	set("generator_fault", t.Fault)
	return row
}

// latency is the seven columns of a distribution, empty where there are too few samples.
func latency(d *result.Distribution) []string {
	if d == nil {
		return make([]string, 7)
	}
	return []string{whole(&d.Count), whole(&d.Mean), whole(d.P50), whole(d.P90), whole(d.P99), whole(d.P999), whole(&d.Max)}
}

func number(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', -1, 64)
}

func whole(v *int64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatInt(*v, 10)
}
