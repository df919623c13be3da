package staged

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"inflight/broker/internal/testnats"
	"inflight/broker/store"
)

// The leader of a stream refuses a record while it is not done with the last one, or has not got to it. That is no conflict;
// one is that another record is there, or none.
func TestOutboundOfABusyLeader(t *testing.T) {
	t.Parallel()
	const (
		client = "c"
		busy   = `{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"},"seq":0}`
		wrong  = `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: %d"},"seq":0}`
		none   = `{"error":{"code":404,"err_code":10037,"description":"no message found"}}`
		found  = `{"message":{"subject":"s","seq":%d,"data":"MQ==","time":"2026-01-02T03:04:05Z"}}`
	)
	for _, tt := range []struct {
		why      string
		refusals []string // then it is taken
		found    string   // the last record, when it is asked for
		want     error
	}{
		{"it is not done with the last one", []string{busy, busy}, fmt.Sprintf(found, 7), nil},
		{"it has not got to the last one", []string{fmt.Sprintf(wrong, 5)}, fmt.Sprintf(found, 5), nil},
		{"another node's is there", []string{fmt.Sprintf(wrong, 8)}, fmt.Sprintf(found, 8), store.ErrConflict},
		{"another node's is on its way", []string{busy}, fmt.Sprintf(found, 8), store.ErrConflict},
		{"there is none any more", []string{fmt.Sprintf(wrong, 0)}, none, store.ErrConflict},
	} {
		t.Run(tt.why, func(t *testing.T) {
			t.Parallel()
			srv := testnats.Start(t, func(o *server.Options) { o.JetStream = false })
			nc, err := nats.Connect(srv.URL(nil))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			left := tt.refusals
			for subject, answer := range map[string]func() string{
				"$JS.API.STREAM.MSG.GET." + sessionsStream: func() string { return tt.found },
				outboundRoot + hash(client): func() string {
					if len(left) == 0 {
						return `{"stream":"S","seq":9}`
					}
					defer func() { left = left[1:] }()
					return left[0]
				},
			} {
				if _, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(answer())) }); err != nil {
					t.Fatal(err)
				}
			}
			c, err := newCalls(nc, startUp)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.close)
			s := &Store{calls: c, cfg: Config{Timeout: startUp}, outbounds: outbounds{records: map[string]*outRecord{}}}
			s.outbounds.records[client] = &outRecord{client: client, known: true, last: 7}
			done := make(chan error, 1)
			s.PutOutbound(client, []byte("2"), func(err error) { done <- err })
			select {
			case err = <-done:
			case <-time.After(startUp):
				t.Fatal("no outcome")
			}
			if !errors.Is(err, tt.want) || err != nil && tt.want == nil {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if last := s.outbounds.records[client].last; err == nil && last != 9 {
				t.Errorf("the next one replaces %d, want 9", last)
			}
		})
	}
}
