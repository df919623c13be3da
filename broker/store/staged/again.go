package staged

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"inflight/broker/store"
)

// askAgain sends a request and waits for its answer, also until a stream has a leader, at most the store's time-out. lost is for questions that
// do no harm when they are asked twice: what is not answered is asked again, because it may be lost with the leader.
func (s *Store) askAgain(subject string, body []byte, lost bool) ([]byte, error) {
	return s.askAgainWith(nil, subject, body, lost)
}

func (s *Store) askAgainWith(header nats.Header, subject string, body []byte, lost bool) ([]byte, error) {
	type answer struct {
		data []byte
		err  error
	}
	ch := make(chan answer, 16)
	end := time.Now().Add(s.cfg.Timeout)
	for {
		s.calls.send(&nats.Msg{Subject: subject, Header: header, Data: body}, func(data []byte, err error) {
			select {
			case ch <- answer{data, err}:
			default: // enough of them
			}
		})
		var again <-chan time.Time
		if lost {
			again = time.After(retryAfter)
		}
		select {
		case a := <-ch:
			leaderless := errors.Is(a.err, nats.ErrNoResponders) || a.err == nil && unavailable(a.data)
			if !leaderless && (a.err == nil || !lost || errors.Is(a.err, store.ErrClosed)) || time.Now().After(end) {
				return a.data, a.err
			}
			time.Sleep(retryAfter / 10)
		case <-again:
			if time.Now().After(end) {
				a := <-ch // the oldest question is overdue
				return a.data, a.err
			}
		}
	}
}

// unavailable reports whether an answer says that nobody leads, or that the leader is not done yet with what the condition of a
// write is about, and so nothing was done.
func unavailable(data []byte) bool {
	if !bytes.Contains(data, []byte(`"error"`)) {
		return false
	}
	var answer struct {
		Error *apiError `json:"error"`
	}
	return json.Unmarshal(data, &answer) == nil && answer.Error != nil &&
		(answer.Error.ErrCode == codeUnavailable || answer.Error.ErrCode == codeWrongSequence2)
}
