package scenarios

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Ramp is an open loop whose rate changes evenly from one rate to another over the measured time, messages per second of all
// connections together. The warm-up is at the first of them.
type Ramp struct{ From, To int }

// String is the ramp as a file and a flag give it.
func (r Ramp) String() string { return strconv.Itoa(r.From) + rangeMark + strconv.Itoa(r.To) }

func parseRamp(text string) (Ramp, error) {
	first, second, _ := strings.Cut(text, rangeMark)
	from, err := parseCount("rate", strings.TrimSpace(first))
	to, err2 := parseCount("rate", strings.TrimSpace(second))
	r := Ramp{from, to}
	if err = errors.Join(err, err2); err != nil {
		return r, err
	}
	return r, r.validate()
}

func (r Ramp) validate() error {
	for _, n := range []int{r.From, r.To} {
		if text := outside("rate", n, 1, MaxRate, "a ramp goes from one number of messages per second to another"); text != "" {
			return errors.New(text)
		}
	}
	if r.From == r.To {
		return fmt.Errorf("rate %v is no ramp: write %d", r, r.From)
	}
	return nil
}
