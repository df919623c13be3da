package probe

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"inflight/runner/check"
	"inflight/runner/history"
	"inflight/runner/result"
)

// Config says what to check, and on what.
type Config struct {
	Endpoint  Endpoint
	Target    string
	Versions  []byte // Protocol Levels, in this order
	Rules     []*check.Rule
	Rounds    int // of a racy check
	Parallel  int // checks at once
	Seed      uint64
	Quick     bool
	Timeout   time.Duration // of one expectation
	Ordered   bool          // declared: acknowledgements in packet order
	Durable   bool          // declared: what was acknowledged survives a restart
	Dir       string        // where histories and evidence go
	Died      <-chan struct{}
	Why       func() error // the broker died
	Progress  func(Event)
	ToolLabel string

	// Memory reads the resident memory of the broker, in bytes; nil if that cannot be done.
	Memory func() (int64, error)
	// Nodes are those of the cluster that Endpoint is the first of; nil: no more than that one is known.
	Nodes []Endpoint
	// Own starts a broker that may be stopped, for the rules that need Hooks; nil if there cannot be one. They run one after
	// the other, beside the others; but Shared says that it is the broker under test itself, and then they run last.
	Own    func(ctx context.Context) (*Instance, error)
	Hooks  []string
	Shared bool
}

// Event is a step of a check, for those who watch.
type Event struct {
	Row         *result.CheckRow // that was finished; nil at the beginning of a version
	MQTT        string
	Version     *result.CheckVersion
	Done, Total int
	Running     []string
}

// Limits of one check.
const (
	checkBudget = 90 * time.Second
	heavyBudget = 5 * time.Minute
	lateFactor  = 3               // how much longer an answer may take beside other checks
	rowBudget   = 3 * time.Minute // of all rounds of a row; those that began before it end
)

// runner is one whole check.
type runner struct {
	cfg Config
	tag string
	seq atomic.Int64

	mu      sync.Mutex
	c       *result.Check
	running map[string]bool
	inv     map[string]*result.CheckRow // invariants by id and version
	done    int
	total   int
	own     owned
	showing sync.Mutex                       // held while an invariant's row is made
	shown   map[*result.CheckRow]check.Level // of what the row of an invariant shows
	late    []*job                           // only something that did not come in time was found
	saved   int64                            // bytes of histories
	errs    []error
}

// Level names are how versions are written.
func mqttName(level byte) string {
	if level == history.Level5 {
		return "5.0"
	}
	return "3.1.1"
}

// Run checks a broker. The result is never nil; on an error it is partial.
func Run(ctx context.Context, cfg Config) (*result.Check, error) {
	r := &runner{cfg: cfg, tag: newTag(), running: map[string]bool{}, inv: map[string]*result.CheckRow{}, shown: map[*result.CheckRow]check.Level{}}
	r.c = &result.Check{
		Tool: cfg.ToolLabel, Started: time.Now(), Target: cfg.Target, Seed: cfg.Seed, Rounds: cfg.Rounds, Quick: cfg.Quick, Timeout: int64(cfg.Timeout),
		Rows: []result.CheckRow{}, Speaks: []result.CheckVersion{},
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if cfg.Died != nil {
		go func() {
			select {
			case <-cfg.Died:
				cancel(cfg.Why())
			case <-ctx.Done():
			}
		}()
	}
	err := errors.Join(r.versions(ctx), r.own.end())
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	r.finish(err)
	return r.c, errors.Join(append([]error{err}, r.errs...)...)
}

// newTag is eight letters and digits that no other run has.
func newTag() string { return "c" + strings.ToLower(rand.Text()[:7]) }

// next is the tag of one run of a script.
func (r *runner) next() string { return r.tag + strconv.FormatInt(r.seq.Add(1), 36) }

func (r *runner) versions(ctx context.Context) error {
	var jobs []*job
	spoken := 0
	var refusals []string
	for _, level := range r.cfg.Versions {
		v := result.CheckVersion{MQTT: mqttName(level)}
		caps, why := r.detect(ctx, level)
		if ctx.Err() != nil {
			return nil
		}
		v.Spoken, v.Why = why == "", why
		if v.Spoken {
			spoken++
			v.Capabilities = caps.Shown()
			jobs = append(jobs, r.jobs(level, caps)...)
		} else {
			refusals = append(refusals, why)
		}
		r.c.Speaks = append(r.c.Speaks, v)
		if v.Spoken || len(r.cfg.Versions) > 1 && spoken > 0 {
			r.tell(Event{MQTT: v.MQTT, Version: &v})
		}
	}
	if spoken == 0 {
		return fmt.Errorf("%s cannot be checked: %s", r.cfg.Target, strings.Join(slices.Compact(refusals), "; "))
	}
	r.total = len(jobs)
	return r.all(ctx, jobs)
}

// detect plays the detection and says why the version is not spoken, "" if it is.
func (r *runner) detect(ctx context.Context, level byte) (check.Caps, string) {
	s := check.NewScript(level, check.Caps{}, r.cfg.Quick, 1, r.cfg.Seed)
	check.Detection(s)
	env := r.environment()
	env.Hints = true
	h := Play(ctx, env, "detection", s, 1, r.cfg.Seed)
	if h.Trouble != "" {
		return check.Caps{}, strings.TrimPrefix(h.Trouble, "p: ")
	}
	r.keep(h, "detection-"+mqttName(level))
	caps := check.Detected(h)
	caps.OrderedAcks, caps.Durable = r.cfg.Ordered, r.cfg.Durable
	caps.Nodes = max(1, len(r.cfg.Nodes))
	if r.cfg.Own != nil {
		caps.Hooks = append(caps.Hooks, r.cfg.Hooks...)
	}
	if r.cfg.Memory != nil {
		caps.Hooks = append(caps.Hooks, "memory")
	}
	return caps, ""
}

func (r *runner) environment() Environment {
	return Environment{
		Endpoint: r.cfg.Endpoint, Nodes: r.cfg.Nodes, Timeout: r.cfg.Timeout, Long: check.LongFactor * r.cfg.Timeout, Tag: r.next(), Memory: r.cfg.Memory,
	}
}

// jobs are the rules that apply; a row is kept for each that does not, and why.
func (r *runner) jobs(level byte, caps check.Caps) []*job {
	var jobs []*job
	for _, rule := range r.cfg.Rules {
		if !rule.Applies(level) {
			continue
		}
		if isInvariant(rule) {
			row := newRow(rule, level)
			row.Outcome = result.CheckOK
			r.inv[rule.ID+row.MQTT] = &row
			continue
		}
		why := caps.Lacks(rule.Needs)
		if why == "" && r.cfg.Quick && rule.Slow {
			why = "it waits long, and --quick leaves it out"
		}
		if why != "" {
			row := newRow(rule, level)
			row.Outcome, row.Why = result.CheckNotApplicable, why
			r.c.Rows = append(r.c.Rows, row)
			continue
		}
		jobs = append(jobs, r.newJob(rule, level, caps))
	}
	return jobs
}

func isInvariant(rule *check.Rule) bool { return rule.Script == nil }

func newRow(rule *check.Rule, level byte) result.CheckRow {
	return result.CheckRow{
		ID: rule.ID, Group: rule.Group(), Title: rule.Title, MQTT: mqttName(level), Level: rule.Level.String(), Statements: rule.StatementsOf(level),
	}
}

func (r *runner) note(name string, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if on {
		r.running[name] = true
	} else {
		delete(r.running, name)
	}
}

func (r *runner) tell(e Event) {
	if r.cfg.Progress == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Done, e.Total = r.done, r.total
	for name := range r.running {
		e.Running = append(e.Running, name)
	}
	slices.Sort(e.Running)
	r.cfg.Progress(e)
}

// maxFindings bounds what a row says.
const maxFindings = 10

// control plays the control of a rule.
func (r *runner) control(ctx context.Context, j *job) *result.CheckControl {
	rule := check.ControlFor(j.rule)
	h := r.play(ctx, &job{rule: rule, level: j.level, caps: j.caps, own: j.own, again: j.again}, rule, 1)
	v := check.Judge(rule, h)
	c := &result.CheckControl{ID: rule.ID, Outcome: string(v.Outcome), Why: v.Why}
	if len(v.Findings) > 0 {
		c.Why = v.Findings[0].Text
	}
	return c
}

// play runs one script within its budget.
func (r *runner) play(ctx context.Context, j *job, rule *check.Rule, round int) *history.History {
	budget := checkBudget
	if rule.Heavy || rule.Slow || j.own || j.again {
		budget = heavyBudget
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	s := check.NewScript(j.level, j.caps, r.cfg.Quick, round, r.cfg.Seed)
	rule.Script(s)
	env := r.environment()
	if !j.again {
		env.Timeout *= lateFactor // many wait at once for a broker that is busy; Long is long enough
	}
	if j.own {
		return r.playOwned(ctx, env, rule, s, round)
	}
	return Play(ctx, env, rule.ID, s, round, r.cfg.Seed)
}

// invariants judges the invariants on a history of a row.
func (r *runner) invariants(ctx context.Context, j *job, h *history.History, found map[*check.Rule]check.Verdict) {
	r.mu.Lock()
	rows := map[*check.Rule]*result.CheckRow{}
	for rule := range found {
		rows[rule] = r.inv[rule.ID+mqttName(j.level)]
	}
	for _, row := range r.inv {
		if row.MQTT == mqttName(j.level) {
			row.Rounds++
		}
	}
	r.mu.Unlock()
	for rule, v := range found {
		row := rows[rule]
		if row == nil {
			continue // it was not asked for
		}
		r.mu.Lock()
		row.Violated++
		r.mu.Unlock()
		r.broken(ctx, j, row, h, v)
	}
}

// broken is an invariant that does not hold: the worst finding, and of those the first, is what its row shows.
func (r *runner) broken(ctx context.Context, j *job, row *result.CheckRow, h *history.History, v check.Verdict) {
	r.showing.Lock()
	defer r.showing.Unlock()
	if r.shown[row] >= v.Level {
		return
	}
	r.shown[row] = v.Level
	row.Outcome, row.ViolatedLevel, row.Why, row.Findings, row.Notes = result.CheckViolated, v.Level.String(), "", nil, nil
	for _, f := range v.Findings[:min(len(v.Findings), maxFindings)] {
		row.Findings = append(row.Findings, result.CheckFinding{Level: f.Level.String(), Text: f.Text})
	}
	row.Notes = append(row.Notes, "seen in "+j.rule.ID)
	rule := check.ByID(row.ID)
	if row.Control = r.control(ctx, &job{rule: rule, level: j.level, caps: j.caps}); row.Control.Outcome != result.CheckOK {
		row.Outcome, row.ViolatedLevel = result.CheckInconclusive, ""
		row.Why = fmt.Sprintf("the control %s is not green: %s", row.Control.ID, row.Control.Why)
	}
	row.Evidence = r.evidence(row, h, v)
}

// finish puts the rows in the order of the catalogue.
func (r *runner) finish(err error) {
	for _, row := range r.inv {
		if row.Rounds > 0 {
			r.c.Rows = append(r.c.Rows, *row)
		}
	}
	place := map[string]int{}
	for i, rule := range r.cfg.Rules {
		place[rule.ID] = i
	}
	slices.SortStableFunc(r.c.Rows, func(a, b result.CheckRow) int {
		return cmp.Or(cmp.Compare(place[a.ID], place[b.ID]), cmp.Compare(a.MQTT, b.MQTT))
	})
	if err != nil {
		r.c.Partial = true
		r.c.Trouble, _, _ = strings.Cut(err.Error(), "\n")
		var running []string
		for name := range r.running {
			running = append(running, name)
		}
		if len(running) > 0 {
			slices.Sort(running)
			r.c.Trouble += " (running: " + strings.Join(running, ", ") + ")"
		}
	}
	r.c.TookNs = int64(time.Since(r.c.Started))
	r.c.Count()
}
