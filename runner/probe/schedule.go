package probe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"inflight/runner/check"
	"inflight/runner/history"
	"inflight/runner/result"
)

// Limits of the scheduling.
const (
	longWait = 4 * time.Second // a script that only waits so long is started first and holds no lane
	mostVain = 3               // rounds that waited in vain; more of them show nothing new and take long
	lateRows = 4               // of those that are run once more, at once: mostly they wait
)

// job is one rule in one version, and what its rounds have shown so far.
type job struct {
	rule  *check.Rule
	level byte
	caps  check.Caps
	own   bool
	idle  time.Duration // how long its script does nothing but wait
	again bool          // what did not come in time is tried once more, alone

	left []int         // rounds that are to be played
	took time.Duration // of all turns

	mu     sync.Mutex
	rounds map[int]*round
	late   string // what did not come in time the first time

	postponed int // rounds that are to be played once more
	vain      int // rounds that waited in vain
	first     int // the round of worst
	worst     check.Verdict
	proof     *history.History // of worst
}

// round is what one round has shown.
type round struct {
	outcome check.Outcome
	why     string
	notes   []string
	file    string // of its history
}

func (r *runner) newJob(rule *check.Rule, level byte, caps check.Caps) *job {
	j := &job{rule: rule, level: level, caps: caps, own: rule.Hooked(), left: []int{1}, rounds: map[int]*round{}}
	if rule.Racy {
		for n := 2; n <= r.cfg.Rounds; n++ {
			j.left = append(j.left, n)
		}
	}
	s := check.NewScript(level, caps, r.cfg.Quick, 1, r.cfg.Seed)
	rule.Script(s)
	j.idle = s.Idle()
	return j
}

// lane bounds how many scripts of a kind are played at once.
type lane chan struct{}

func (l lane) enter() { l <- struct{}{} }
func (l lane) leave() { <-l }

// all runs the jobs. What mostly waits begins at once, beside everything else. Then come the short ones, which are nearest
// to a limit when the broker is slow to answer, side by side; after them the racy ones, whose rounds are played side by
// side, and beside those what is heavy, one after the other; then what disturbs others; and last what was only late. What
// stops a broker of its own runs beside all of it, one after the other; what stops the broker itself disturbs others.
func (r *runner) all(ctx context.Context, jobs []*job) error {
	slices.SortStableFunc(jobs, func(a, b *job) int { return -cmp.Compare(a.idle, b.idle) })
	var waiting, short, racy, heavy, alone, owned []*job
	for _, j := range jobs {
		switch {
		case j.own && !r.cfg.Shared:
			owned = append(owned, j)
		case j.rule.Alone || j.own:
			alone = append(alone, j)
		case j.rule.Heavy:
			heavy = append(heavy, j)
		case j.rule.Racy:
			racy = append(racy, j)
		case j.idle >= longWait:
			waiting = append(waiting, j)
		default:
			short = append(short, j)
		}
	}
	main := make(lane, max(1, r.cfg.Parallel))
	beside, single, ownedLane := make(lane, cap(main)), make(lane, 1), make(lane, 1)
	if cap(main) == 1 { // one at a time means that
		beside, single, ownedLane = main, main, main
	}
	var rest, brief sync.WaitGroup
	rest.Go(func() { r.start(ctx, &rest, owned, ownedLane) })
	rest.Go(func() { r.start(ctx, &rest, waiting, beside) })
	r.start(ctx, &brief, short, main)
	brief.Wait()
	rest.Go(func() { r.start(ctx, &rest, heavy, single) })
	r.start(ctx, &rest, racy, main)
	rest.Wait()
	r.start(ctx, &rest, alone, single)
	rest.Wait()
	slices.SortStableFunc(r.late, func(a, b *job) int {
		return cmp.Compare(btoi(a.loud()), btoi(b.loud()))
	})
	once := make(lane, min(lateRows, cap(main)))
	for _, j := range r.late {
		l := once
		if j.loud() {
			rest.Wait()
			l = single
		}
		r.start(ctx, &rest, []*job{j}, l)
	}
	rest.Wait()
	return nil
}

// loud reports whether others are not to run beside the job when it matters.
func (j *job) loud() bool { return j.rule.Alone || j.rule.Heavy || j.own }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// start takes turns of the jobs, in their order as far as the lane has room.
func (r *runner) start(ctx context.Context, group *sync.WaitGroup, jobs []*job, l lane) {
	for _, j := range jobs {
		l.enter()
		if ctx.Err() != nil {
			l.leave()
			return
		}
		group.Go(func() { r.do(ctx, j, l) })
	}
}

// do takes one turn of a job, whose first round has a place in the lane already.
func (r *runner) do(ctx context.Context, j *job, l lane) {
	name := j.rule.ID + " (" + mqttName(j.level) + ")"
	r.note(name, true)
	start := time.Now()
	r.turn(ctx, j, l)
	var row result.CheckRow
	again := !j.again && j.postponed > 0
	if !again && ctx.Err() == nil {
		row = r.row(ctx, j)
	}
	j.took += time.Since(start)
	row.TookNs = int64(j.took)
	r.note(name, false)
	switch {
	case ctx.Err() != nil:
		return // what a dying run found says nothing
	case again:
		j.again = true
		r.mu.Lock()
		r.late = append(r.late, j)
		r.mu.Unlock()
		return
	}
	r.mu.Lock()
	r.c.Rows = append(r.c.Rows, row)
	r.done++
	r.mu.Unlock()
	r.tell(Event{Row: &row, MQTT: row.MQTT})
}

// turn plays the rounds that are left, as many at once as the lane has room for. Those that it does not come to, because
// one was late, or many waited in vain, or the row's time is over, stay left.
func (r *runner) turn(ctx context.Context, j *job, l lane) {
	start := time.Now()
	todo := j.left
	j.left = nil
	var all sync.WaitGroup
	for i, n := range todo {
		if i > 0 {
			l.enter()
		}
		if ctx.Err() != nil || i > 0 && (j.stopped() || time.Since(start) > rowBudget) {
			l.leave()
			j.mu.Lock()
			j.left = append(j.left, todo[i:]...)
			j.mu.Unlock()
			break
		}
		all.Go(func() {
			defer l.leave()
			r.round(ctx, j, n)
		})
	}
	all.Wait()
	slices.Sort(j.left)
}

// stopped reports whether no further round is to begin in this turn.
func (j *job) stopped() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.again && j.postponed > 0 || j.vain >= mostVain
}

// round plays one round and keeps what it showed. When something did not come in time and nothing else was found, the round
// is left for when nothing else runs: a machine may be late.
func (r *runner) round(ctx context.Context, j *job, n int) {
	h := r.play(ctx, j, j.rule, n)
	v, broken := check.JudgeAll(j.rule, h)
	late := v.Timeout && len(v.Findings) == 1
	if !j.again && (late || v.Outcome == check.Inconclusive) || ctx.Err() != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.left = append(j.left, n)
		j.postponed++
		if late && j.late == "" {
			j.late = v.Findings[0].Text
		}
		return
	}
	r.invariants(ctx, j, h, broken)
	one := &round{outcome: v.Outcome, why: v.Why, notes: v.Notes, file: r.keep(h, fmt.Sprintf("%s-%s-%d", j.rule.ID, mqttName(j.level), n))}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rounds[n] = one
	if v.Outcome != check.Violated {
		return
	}
	if late {
		j.vain++
	}
	if v.Level > j.worst.Level || v.Level == j.worst.Level && n < j.first {
		j.worst, j.first, j.proof = v, n, h
	}
}

// maxNotes bounds the remarks of a row.
const maxNotes = 8

// row is what the rounds of a job say together.
func (r *runner) row(ctx context.Context, j *job) result.CheckRow {
	row := newRow(j.rule, j.level)
	row.Seed, row.Rounds = r.cfg.Seed, len(j.rounds)
	for n := range r.cfg.Rounds + 1 {
		one := j.rounds[n]
		if one == nil {
			continue
		}
		if one.file != "" {
			row.Histories = append(row.Histories, one.file)
		}
		for _, text := range one.notes {
			if !slices.Contains(row.Notes, text) && len(row.Notes) < maxNotes {
				row.Notes = append(row.Notes, text)
			}
		}
		switch one.outcome {
		case check.Violated:
			row.Violated++
		case check.Inconclusive:
			row.Unsure++
			row.Why = cmp.Or(row.Why, one.why)
		}
	}
	if len(j.left) > 0 {
		row.Notes = append(row.Notes, fmt.Sprintf("%d of %d rounds: they take long", len(j.rounds), len(j.rounds)+len(j.left)))
	}
	if j.late != "" && row.Violated == 0 && row.Unsure == 0 {
		row.Unsure, row.Why = 1, "late beside other checks, not when run alone: "+j.late
	}
	r.decide(ctx, &row, j)
	return row
}

// decide makes the outcome of the row from its rounds; a violation needs its control.
func (r *runner) decide(ctx context.Context, row *result.CheckRow, j *job) {
	switch {
	case row.Violated > 0:
		row.Why = ""
		row.Outcome, row.ViolatedLevel = result.CheckViolated, j.worst.Level.String()
		for _, f := range j.worst.Findings[:min(len(j.worst.Findings), maxFindings)] {
			row.Findings = append(row.Findings, result.CheckFinding{Level: f.Level.String(), Text: f.Text})
		}
		row.Control = r.control(ctx, j)
		if row.Control.Outcome != result.CheckOK {
			row.Outcome, row.ViolatedLevel = result.CheckInconclusive, ""
			row.Why = fmt.Sprintf("the control %s is not green: %s", row.Control.ID, row.Control.Why)
		}
		row.Evidence = r.evidence(row, j.proof, j.worst)
	case row.Unsure > 0:
		row.Outcome = result.CheckInconclusive
	default:
		row.Outcome = result.CheckOK
	}
}
