package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// CheckSchema names the format of check.json.
const CheckSchema = "inflight.check/1"

// CheckFile is the name of the file of a conformance check in its directory.
const CheckFile = "check.json"

// Check is what a conformance check found. Times are nanoseconds.
type Check struct {
	Schema  string    `json:"schema"`
	Tool    string    `json:"tool"`
	Started time.Time `json:"started"`
	TookNs  int64     `json:"took_ns"`
	Partial bool      `json:"partial"`           // it was cut off
	Trouble string    `json:"trouble,omitempty"` // by what

	Target  string   `json:"target"`
	Version string   `json:"version,omitempty"` // of the broker, as it reports it
	Command []string `json:"command,omitempty"`

	Seed    uint64 `json:"seed"`
	Rounds  int    `json:"rounds"` // of a racy check
	Quick   bool   `json:"quick"`
	Timeout int64  `json:"timeout_ns"` // of one expectation

	Speaks []CheckVersion `json:"versions"` // of MQTT, one each that was asked for
	Counts CheckCounts    `json:"counts"`
	Rows   []CheckRow     `json:"rows"`
}

// CheckVersion is what the broker can do in one version of MQTT.
type CheckVersion struct {
	MQTT         string            `json:"mqtt"` // 3.1.1 or 5.0
	Spoken       bool              `json:"spoken"`
	Why          string            `json:"why,omitempty"` // it is not
	Capabilities map[string]string `json:"capabilities,omitempty"`
}

// CheckCounts counts rows by outcome; violated ones by the level of the worst finding.
type CheckCounts struct {
	OK               int `json:"ok"`
	ViolatedMust     int `json:"violated_must"`
	ViolatedContract int `json:"violated_contract"`
	ViolatedInfo     int `json:"violated_info"`
	Inconclusive     int `json:"inconclusive"`
	NotApplicable    int `json:"not_applicable"`
}

// CheckRow is one rule in one version of MQTT.
type CheckRow struct {
	ID         string   `json:"id"`
	Group      string   `json:"group"`
	Title      string   `json:"title"`
	MQTT       string   `json:"mqtt"`
	Level      string   `json:"level"` // must, contract or info
	Statements []string `json:"statements,omitempty"`

	Outcome       string `json:"outcome"`                  // ok, violated, inconclusive or not applicable
	ViolatedLevel string `json:"violated_level,omitempty"` // of the worst finding
	Why           string `json:"why,omitempty"`            // it is inconclusive or not applicable

	Rounds   int           `json:"rounds"`
	Violated int           `json:"violated_rounds"`
	Unsure   int           `json:"inconclusive_rounds"`
	Seed     uint64        `json:"seed"`
	TookNs   int64         `json:"took_ns"`
	Control  *CheckControl `json:"control,omitempty"` // only where one was needed

	Findings  []CheckFinding `json:"findings,omitempty"` // of the first violated round
	Notes     []string       `json:"notes,omitempty"`
	Histories []string       `json:"histories,omitempty"` // files, relative to the directory
	Evidence  []string       `json:"evidence,omitempty"`  // transcripts and captures, as well
}

// CheckControl is the same flow without the fault.
type CheckControl struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"`
	Why     string `json:"why,omitempty"`
}

// CheckFinding is one thing that the broker did against the rule.
type CheckFinding struct {
	Level string `json:"level"`
	Text  string `json:"text"`
}

// The outcomes and levels of rows as they are written.
const (
	CheckOK            = "ok"
	CheckViolated      = "violated"
	CheckInconclusive  = "inconclusive"
	CheckNotApplicable = "not applicable"

	LevelMust     = "must"
	LevelContract = "contract"
	LevelInfo     = "info"
)

// Count fills Counts from Rows.
func (c *Check) Count() {
	c.Counts = CheckCounts{}
	for i := range c.Rows {
		switch r := &c.Rows[i]; r.Outcome {
		case CheckOK:
			c.Counts.OK++
		case CheckInconclusive:
			c.Counts.Inconclusive++
		case CheckNotApplicable:
			c.Counts.NotApplicable++
		case CheckViolated:
			switch r.ViolatedLevel {
			case LevelMust:
				c.Counts.ViolatedMust++
			case LevelContract:
				c.Counts.ViolatedContract++
			default:
				c.Counts.ViolatedInfo++
			}
		}
	}
}

// WriteCheck writes check.json into the directory, whole or not at all.
func WriteCheck(dir string, c *Check) error {
	c.Schema = CheckSchema
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", CheckFile, err)
	}
	return WriteFile(filepath.Join(dir, CheckFile), append(data, '\n'))
}

// ReadCheck reads check.json of a directory.
func ReadCheck(dir string) (*Check, error) {
	path := filepath.Join(dir, CheckFile)
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s holds no %s: not the directory of a conformance check", dir, CheckFile)
	case err != nil:
		return nil, fmt.Errorf("read a conformance check: %w", err)
	}
	c := &Check{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if c.Schema != CheckSchema {
		return nil, fmt.Errorf("read %s: schema %q, want %q", path, c.Schema, CheckSchema)
	}
	return c, nil
}
