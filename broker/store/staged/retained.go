package staged

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"inflight/broker/store"
	"inflight/broker/topic"
)

// Retained reads the retained messages one after the other from the stream's leader, so that no more than one of them is
// in memory. A topic that is written again meanwhile moves past the end.
func (s *Store) Retained(ctx context.Context, filter string, end uint64, each func(*store.Message) bool) error {
	fail := func(err error) error { return fmt.Errorf("retained messages of %.100q: %w", filter, ended(err)) }
	if !strings.ContainsAny(filter, "+#") {
		subject, err := s.subject(filter)
		if err != nil {
			return nil // no message has such a topic
		}
		got, err := s.get(retainedStream, `{"last_by_subj":`+quote(retainedRoot+subject)+`}`)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err != nil:
			return fail(err)
		}
		if m := s.retainedMessage(got); m != nil && got.Message.Seq <= end {
			each(m)
		}
		return nil
	}
	for _, subject := range topic.SubjectFilter(filter) {
		if len(subject) > s.maxSubject {
			continue
		}
		for next := uint64(1); next <= end; {
			if err := ctx.Err(); err != nil {
				return fail(err)
			}
			got, err := s.get(retainedStream, fmt.Sprintf(`{"seq":%d,"next_by_subj":%s}`, next, quote(retainedRoot+subject)))
			if errors.Is(err, store.ErrNotFound) {
				break
			}
			if err != nil {
				return fail(err)
			}
			if got.Message.Seq > end {
				break
			}
			next = got.Message.Seq + 1
			if m := s.retainedMessage(got); m != nil && !each(m) {
				return nil
			}
		}
	}
	return nil
}

// quote writes a subject, which may hold any character of a topic, as JSON.
func quote(subject string) string {
	b, _ := json.Marshal(subject)
	return string(b)
}

func (s *Store) retainedMessage(got *stored) *store.Message {
	m, err := store.Decode(got.Message.Data)
	if err != nil {
		s.log.Error("retained message is corrupt and left out", "subject", got.Message.Subject, "error", err)
		return nil
	}
	if len(m.Payload) == 0 || m.Expires != 0 && m.Left(time.Now()) == 0 { // the stream removes it later
		return nil
	}
	return m
}

// RetainedEnd is the last sequence of the stream, once the writes that are under way, on any node, are in it.
func (s *Store) RetainedEnd(ctx context.Context) (uint64, error) {
	if err := s.written(ctx); err != nil {
		return 0, fmt.Errorf("end of the retained messages: %w", err)
	}
	end, err := s.lastSeq(retainedStream)
	if err != nil {
		return 0, fmt.Errorf("end of the retained messages: %w", err)
	}
	return end, nil
}

// lastSeq is the last sequence of a stream.
func (s *Store) lastSeq(stream string) (uint64, error) {
	info, err := s.streamInfo(stream)
	if err != nil {
		return 0, err
	}
	return info.State.Last, nil
}

// streamInfo is what is of interest here in the state of a stream.
type streamInfo struct {
	Error *apiError `json:"error"`
	State struct {
		Last      uint64            `json:"last_seq"`
		Consumers int               `json:"consumer_count"`
		Subjects  map[string]uint64 `json:"subjects"` // the messages under each subject that was asked for
	} `json:"state"`
	Total int `json:"total"` // of those subjects, where they do not fit into one answer
}

// subjects asks the leader of a stream how many messages there are under each subject below a filter.
func (s *Store) subjects(stream, filter string) (map[string]uint64, error) {
	all := make(map[string]uint64)
	for {
		info, err := s.askInfo(stream, fmt.Appendf(nil, `{"subjects_filter":%q,"offset":%d}`, filter, len(all)))
		if err != nil {
			return nil, err
		}
		maps.Copy(all, info.State.Subjects)
		if len(info.State.Subjects) == 0 || len(all) >= info.Total {
			return all, nil
		}
	}
}

// streamInfo asks the leader of a stream for its state.
func (s *Store) streamInfo(stream string) (*streamInfo, error) { return s.askInfo(stream, nil) }

func (s *Store) askInfo(stream string, request []byte) (*streamInfo, error) {
	data, err := s.askAgain("$JS.API.STREAM.INFO."+stream, request, true)
	if err != nil {
		return nil, err
	}
	var info streamInfo
	if err := json.Unmarshal(data, &info); err != nil {
		return nil, fmt.Errorf("answer of stream %s: %w", stream, err)
	}
	if info.Error != nil {
		return nil, info.Error
	}
	return &info, nil
}
