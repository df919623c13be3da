package staged

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/store"
)

// PutOutbound writes the record as the last value of the client's subject; an empty one says that there is none.
func (s *Store) PutOutbound(client string, data []byte, done func(error)) {
	msg := &nats.Msg{Subject: outboundRoot + hash(client), Data: data}
	if len(data) == 0 {
		msg.Header = nats.Header{jetstream.MsgTTLHeader: {removedFor.String()}}
	}
	s.calls.send(msg, func(answer []byte, err error) {
		if err == nil {
			_, _, err = parsePubAck(answer)
		}
		if err != nil {
			err = fmt.Errorf("outbound record: %w", err)
		}
		done(err)
	})
}

// Outbound reads the record from the leader.
func (s *Store) Outbound(_ context.Context, client string) ([]byte, error) {
	got, err := s.get(sessionsStream, `{"last_by_subj":"`+outboundRoot+hash(client)+`"}`)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("outbound record: %w", err)
	case len(got.Message.Data) == 0:
		return nil, nil
	}
	return got.Message.Data, nil
}

// Again reads a message of the delivery stream.
func (s *Store) Again(_, _ string, seq uint64, done func(*store.Message, error)) {
	s.read(msgsStream, seq, done)
}

// read gets one message by its sequence from the leader of a stream.
func (s *Store) read(stream string, seq uint64, done func(*store.Message, error)) {
	if seq == 0 {
		done(nil, store.ErrNotFound)
		return
	}
	body := []byte(`{"seq":` + strconv.FormatUint(seq, 10) + `}`)
	s.calls.send(&nats.Msg{Subject: "$JS.API.STREAM.MSG.GET." + stream, Data: body}, func(data []byte, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		got, err := parseStored(data)
		if err != nil {
			done(nil, fmt.Errorf("read from stream %s: %w", stream, err))
			return
		}
		done(store.Decode(got.Message.Data))
	})
}
