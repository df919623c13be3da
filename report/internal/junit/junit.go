// Package junit holds the elements of JUnit XML as CI systems read them.
package junit

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// Suites is the document. Write counts the cases, and writes how long they took where it is known.
type Suites struct {
	XMLName  xml.Name `xml:"testsuites"`
	Name     string   `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Skipped  int      `xml:"skipped,attr"`
	Errors   int      `xml:"errors,attr"`
	Time     string   `xml:"time,attr,omitempty"`
	Suites   []*Suite `xml:"testsuite"`

	Took time.Duration `xml:"-"` // 0: not known
}

// Suite is a set of cases.
type Suite struct {
	Name     string `xml:"name,attr"`
	Tests    int    `xml:"tests,attr"`
	Failures int    `xml:"failures,attr"`
	Skipped  int    `xml:"skipped,attr"`
	Errors   int    `xml:"errors,attr"`
	Time     string `xml:"time,attr,omitempty"`
	Cases    []Case `xml:"testcase"`
}

// Case is one test; without a message it passed.
type Case struct {
	Class   string   `xml:"classname,attr"`
	Name    string   `xml:"name,attr"`
	Time    string   `xml:"time,attr,omitempty"`
	Failure *Message `xml:"failure"`
	Error   *Message `xml:"error"`
	Skipped *Message `xml:"skipped"`
	Output  *Output  `xml:"system-out"`

	Took time.Duration `xml:"-"` // 0: not known
}

// Message is why a case did not pass.
type Message struct {
	Type string `xml:"type,attr,omitempty"`
	Text string `xml:"message,attr"`
	Body string `xml:",chardata"`
}

// Output is what a case says beside.
type Output struct {
	Text string `xml:",chardata"`
}

// Write counts the cases and writes the document.
func Write(w io.Writer, all *Suites) error {
	all.Tests, all.Failures, all.Skipped, all.Errors = 0, 0, 0, 0
	all.Time = seconds(all.Took)
	for _, s := range all.Suites {
		s.Tests, s.Failures, s.Skipped, s.Errors = len(s.Cases), 0, 0, 0
		took := time.Duration(0)
		for i := range s.Cases {
			c := &s.Cases[i]
			c.Time = seconds(c.Took)
			took += c.Took
			switch {
			case c.Failure != nil:
				s.Failures++
			case c.Error != nil:
				s.Errors++
			case c.Skipped != nil:
				s.Skipped++
			}
		}
		s.Time = seconds(took)
		all.Tests, all.Failures = all.Tests+s.Tests, all.Failures+s.Failures
		all.Skipped, all.Errors = all.Skipped+s.Skipped, all.Errors+s.Errors
	}
	var b strings.Builder
	b.WriteString(xml.Header)
	enc := xml.NewEncoder(&b)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return fmt.Errorf("write JUnit XML: %w", err)
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func seconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%.3f", d.Seconds())
}
