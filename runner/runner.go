package runner

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"inflight/runner/library"
	"inflight/runner/pin"
	"inflight/runner/result"
	"inflight/runner/target"
	"inflight/scenarios"
)

// Config is one run.
type Config struct {
	Scenario    scenarios.Scenario // with its defaults, validated
	Self        string             // path of the inflight binary: it is the reference and the null broker
	OutDir      string             // directory of this run; logs/, histograms/ and, while it runs, data-*/ are made below it
	CacheDir    string             // where programs that had to be built are kept
	TLS         *tls.Config        // for arms at tls:// and wss:// addresses; nil: the system's roots
	Progress    func(Event)        // called from one goroutine; nil: none
	ToolVersion string
	Calibration *result.Calibration // of this machine, for the result to quote; nil: none
}

// Run executes the scenario. The Result is nil only if the run never began: the scenario cannot be planned, a program cannot be
// found or built, or what is asked for is refused with a *[RefusedError]. Otherwise it holds every run that was finished, and with an error it is marked partial.
// When the context ends the error wraps [context.Canceled] or what ended it. Comparisons, control and warnings are not
// filled in; package report/stat does that.
func Run(ctx context.Context, cfg Config) (*result.Result, error) {
	plan, err := NewPlan(cfg.Scenario)
	if err == nil {
		err = CheckLimits(&cfg.Scenario)
	}
	sizes, sizesErr := sizeTables(&cfg.Scenario)
	if err := errors.Join(err, sizesErr); err != nil {
		return nil, err
	}
	pins, err := pin.Here(&plan.Scenario)
	if err != nil {
		return nil, err
	}
	r := &run{
		cfg:      cfg,
		pins:     pins,
		plan:     plan,
		events:   newEvents(cfg.Progress),
		forecast: newForecast(plan),
		turns:    newTurns(),
		sizes:    sizes,
		started:  time.Now(),
		id:       rand.Uint32(),
	}
	defer r.events.close()
	if err := r.prepare(ctx); err != nil {
		return nil, interrupted(ctx, err)
	}
	unpin, err := r.pinSelf()
	if err != nil {
		return nil, err
	}
	defer unpin()
	warnings, err := r.askGenerator(ctx)
	if err != nil {
		return nil, interrupted(ctx, err)
	}
	r.result = r.describe()
	r.result.Warnings = append(r.result.Warnings, warnings...)
	err = r.passes(ctx)
	for i := range r.arms {
		if other := r.arms[i].client; other != nil {
			err = errors.Join(err, other.Close())
		}
	}
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		return nil, interrupted(ctx, err)
	}
	if err != nil {
		err = interrupted(ctx, err)
		r.result.Partial = true
		r.result.Trouble = err.Error()
		r.result.DurationNS = int64(time.Since(r.started))
		return r.result, err
	}
	r.result.DurationNS = int64(time.Since(r.started))
	return r.result, nil
}

// sizeTables lays out the distributions of payload sizes, once for all arms and runs.
func sizeTables(s *scenarios.Scenario) (map[string][]int, error) {
	tables := map[string][]int{}
	for _, p := range s.Points() {
		table, err := p.SizeTable(uint64(s.Seed))
		if err != nil {
			return nil, fmt.Errorf("plan a run: %w", err)
		}
		if table != nil {
			tables[p.Sizes] = table
		}
	}
	return tables, nil
}

// run is the state of one Run. It belongs to the goroutine that called it.
type run struct {
	cfg      Config
	plan     *Plan
	pins     *pin.Plan // nil: the scheduler places every process
	events   *events
	forecast *forecast
	turns    *turns
	result   *result.Result
	started  time.Time
	arms     []arm
	sizes    map[string][]int // of payloads, by the distribution of a point
	id       uint32           // tells this run's topics and clients from those of others on the same broker
	serial   uint32           // of the client runs
}

// arm is one broker under test while it can be started, and the client of its load.
type arm struct {
	scenarios.Arm
	program *target.Program
	client  *library.Client // nil: the wire client
}

// process is that of the arm's client, if it has one of its own.
func (a *arm) process() (pid int, ok bool) {
	if a.client == nil {
		return 0, false
	}
	return a.client.Process()
}

// prepare parses every target before it builds any, and looks for what clients need: a mistyped second arm, or a missing
// program, is told at once.
func (r *run) prepare(ctx context.Context) error {
	specs := make([]*target.Spec, len(r.cfg.Scenario.Arms))
	for i, a := range r.cfg.Scenario.Arms {
		spec, err := target.Parse(a.Target)
		if err != nil {
			return fmt.Errorf("arm %s: %w", a.Name, err)
		}
		specs[i] = spec
		if err := library.Check(a.Client); err != nil {
			return fmt.Errorf("arm %s: %w", a.Name, err)
		}
	}
	logs := filepath.Join(r.cfg.OutDir, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return fmt.Errorf("make the directory of the brokers' logs: %w", err)
	}
	for i, a := range r.cfg.Scenario.Arms {
		r.send(Event{Kind: Preparing, Arm: a.Name, Target: a.Target})
		talk := func(format string, args ...any) {
			r.events.send(Event{Kind: Talk, Arm: a.Name, Target: a.Target, Text: fmt.Sprintf(format, args...)})
		}
		program, err := target.Prepare(ctx, specs[i], target.Options{
			Self:     r.cfg.Self,
			CacheDir: r.cfg.CacheDir,
			LogDir:   logs,
			TLS:      r.cfg.TLS,
			Talk:     talk,
		})
		prepared := arm{Arm: a, program: program}
		if err == nil && a.Library() != "" {
			prepared.client, err = library.Prepare(ctx, a.Client, r.cfg.CacheDir, talk)
		}
		if err != nil {
			return fmt.Errorf("arm %s: %w", a.Name, err)
		}
		r.arms = append(r.arms, prepared)
	}
	return nil
}

// describe is the result before anything was measured.
func (r *run) describe() *result.Result {
	s := &r.plan.Scenario
	res := &result.Result{
		Schema:      result.Schema,
		Tool:        result.Tool{Name: "inflight", Version: r.cfg.ToolVersion, Revision: revision()},
		Started:     r.started.UTC(),
		Environment: Environment(),
		Scenario: result.Scenario{
			Name:        s.Name,
			Question:    s.Question,
			QoS:         s.QoS,
			Windows:     s.Windows,
			Connections: s.Connections,
			Payloads:    append([]int{}, s.Payloads...), // a list also where all are distributions
			DurationNS:  int64(s.Duration),
			WarmupNS:    int64(s.Warmup),
			ControlNS:   int64(max(0, s.Control)),
			Passes:      s.Passes,
			Blocks:      s.Blocks,
			Nodes:       s.Nodes,
			Replicas:    s.Replicas,
			VerifyNS:    int64(max(0, s.Verify)),
			Quick:       s.Quick,
			Gate:        s.Gate,

			Version:           s.Version,
			RunMessages:       int64(s.Messages),
			Subscribers:       s.Subscribers,
			SubscriberQoS:     s.SubscriberQoS,
			SubscriberDelayNS: int64(max(0, s.SubscriberDelay)),
		},
	}
	if s.Topics > 1 {
		res.Scenario.Topics = s.Topics
	}
	res.Scenario.PayloadSizes = s.Sizes
	if s.FindMax != (scenarios.Limit{}) {
		res.Scenario.FindMax = s.FindMax.String()
	}
	if len(s.Sizes) > 0 {
		res.Scenario.Seed = s.Seed
	}
	for _, ramp := range s.Ramps {
		res.Scenario.RateRamps = append(res.Scenario.RateRamps, ramp.String())
	}
	if len(s.Rates) == 1 {
		res.Scenario.RatePerS = float64(s.Rates[0])
	} else {
		for _, rate := range s.Rates {
			res.Scenario.RatesPerS = append(res.Scenario.RatesPerS, float64(rate))
		}
	}
	res.Environment.Calibration = r.cfg.Calibration
	res.Environment.Pinning = pinning(r.pins)
	for _, a := range r.arms {
		described := result.Arm{Name: a.Name, Target: a.Target}
		if a.client != nil {
			described.Client, described.ClientVersion = a.Client, a.client.Version()
		}
		res.Arms = append(res.Arms, described)
	}
	return res
}

// passes runs every pass on data directories of its own, which are gone afterwards.
func (r *run) passes(ctx context.Context) (err error) {
	data, err := os.MkdirTemp(r.cfg.OutDir, "data-")
	if err != nil {
		return fmt.Errorf("make the brokers' data directory: %w", err)
	}
	defer func() {
		if removeErr := os.RemoveAll(data); removeErr != nil {
			err = errors.Join(err, fmt.Errorf("remove the brokers' data: %w", removeErr))
		}
	}()
	for i := range r.plan.Passes {
		if err := r.pass(ctx, &r.plan.Passes[i], data); err != nil {
			return err
		}
	}
	return nil
}

// send adds what every event has. Only the run's own goroutine may call it.
func (r *run) send(e Event) {
	e.Passes = r.plan.Scenario.Passes
	e.Blocks = r.plan.Scenario.Blocks
	e.Done = time.Since(r.started)
	e.Total = e.Done + r.forecast.left()
	r.events.send(e)
}

// next numbers a client run: the name of its topics and clients, and the same as a number for its payloads.
func (r *run) next() (name string, number uint64) {
	r.serial++
	// MQTT 3.1.1 lets a broker refuse Client Identifiers above 23 bytes or with anything but letters and digits
	// [MQTT-3.1.3-5]; this name takes at most 15.
	return strconv.FormatUint(uint64(r.id), 36) + "x" + strconv.FormatUint(uint64(r.serial), 36),
		uint64(r.id)<<32 | uint64(r.serial)
}

// interrupted puts the end of the context before whatever it made fail.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, ctx.Err()) {
		return err
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

// revision is the source's, as the Go toolchain recorded it in this binary.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value
		}
	}
	return ""
}
