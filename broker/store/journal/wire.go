package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/store"
)

// Names of the streams and their subjects.
const (
	journalStream  = "INF_journal"
	journalSubject = "inf.j"
	appliedSubject = "inf.a" // where the stream's leader publishes each batch once it is committed
	snapshotStream = "INF_snapshots"
	manifests      = "inf.k.m"
	chunks         = "inf.k.c."
	transient      = "inf.q."
	transientGroup = "inf.g." // and a member's name: QoS 0 publications that it is handed
	present        = "inf.h." // and an author in base 36: it answers as long as it is there
)

// layout is the version of what is in the streams; each of them carries it in its metadata.
const (
	layout    = "3"
	layoutKey = "inflight-layout"
)

const (
	// leadWait bounds how long a node waits at its start to become the leader of a stream.
	leadWait = 5 * time.Second
	// readWait bounds one request to a stream.
	readWait = 2 * time.Second
	// readBatches and readBytes bound what one request reads.
	readBatches = 256
	readBytes   = 4 << 20
	// jump is by how much the sequence of a journal that is made anew is above all that was there before.
	jump = 1000
)

// Error codes of the JetStream API that decide something here.
const (
	codeNoMessage = 10037 // no message found
	codeNoStream  = 10059 // stream not found
	codeNoCluster = 10074 // replicas > 1 on a server of its own
)

// tryFirst is how long the first attempt to find or create a stream may take, tryLongest what that grows to.
const (
	tryFirst   = 3 * time.Second
	tryLongest = 20 * time.Second
)

// errNoJournal says that the stream is not there.
var errNoJournal = errors.New("the journal's stream does not exist")

// wire is JetStream as the journal needs it.
type wire struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	replicas int
	lead     string
	log      *slog.Logger
}

// stored is a batch with its sequence.
type stored struct {
	seq  uint64
	data []byte
}

// extentInfo is what the stream says that it holds.
type extentInfo struct{ first, last uint64 }

func (w *wire) config(name string) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: name, Storage: jetstream.FileStorage, Replicas: w.replicas, AllowDirect: true,
		Duplicates: 100 * time.Millisecond, // not used: batches have numbers
		// No limit. A stream that has one is kept in files of 4 MiB and not of 8, each of which is a buffer while it is written
		// or read.
		MaxMsgsPerSubject: math.MaxInt64,
		Metadata:          map[string]string{layoutKey: layout},
	}
	if name == journalStream {
		c.Subjects = []string{journalSubject}
		c.RePublish = &jetstream.RePublish{Source: journalSubject, Destination: appliedSubject}
	} else {
		c.Subjects = []string{manifests, chunks + "*.*"}
	}
	return c
}

// ensure finds a stream or creates it, and sees to its leader. It retries until ctx ends, because a young cluster refuses
// for a while.
func (w *wire) ensure(ctx context.Context, name string, first uint64) error {
	for limit := tryFirst; ; {
		err := w.tryStream(ctx, name, first, limit)
		if err == nil {
			return nil
		}
		if errors.Is(err, context.DeadlineExceeded) { // a server that is busy may need more time for each attempt
			limit = min(limit+limit/2, tryLongest)
		}
		var api *jetstream.APIError
		switch {
		case errors.As(err, new(differs)):
			return fmt.Errorf("stream %s: %w", name, err)
		case errors.As(err, &api) && api.ErrorCode == codeNoCluster:
			return fmt.Errorf("stream %s: %d replicas need a cluster: use --replicas 1, or --cluster and --routes: %w", name, w.replicas, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stream %s: %w", name, errors.Join(ctx.Err(), err))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// differs says why a stream that exists cannot be used.
type differs string

func (d differs) Error() string { return string(d) }

func (w *wire) tryStream(ctx context.Context, name string, first uint64, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	st, err := w.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		c := w.config(name)
		c.FirstSeq = first
		st, err = w.js.CreateStream(ctx, c)
	}
	if err != nil {
		return err
	}
	info := st.CachedInfo()
	switch have := info.Config; {
	case have.Metadata[layoutKey] != layout:
		return differs(fmt.Sprintf("it was made by another inflight (layout %.20q, this one has %s): use another --store-dir, or that inflight", have.Metadata[layoutKey], layout))
	case have.Replicas != w.replicas:
		return differs(fmt.Sprintf("it has %d replicas, not %d: use --replicas %[1]d, or another --store-dir", have.Replicas, w.replicas))
	}
	if info.Cluster == nil {
		return nil
	}
	if info.Cluster.Leader == "" {
		return errors.New("no leader yet")
	}
	return nil
}

// moveLeader asks a stream to move to the preferred server. Leaders land at random otherwise, which moves rates by a
// factor of two from one start to the next. It is a wish: after leadWait it is given up and only logged. An answer can get
// lost with the old leader, so each request is bounded and the outcome is looked up.
func (w *wire) moveLeader(ctx context.Context, name string) {
	if w.lead == "" || w.replicas < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leadWait)
	defer cancel()
	for asked := (time.Time{}); ; {
		attempt, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		leader := ""
		if st, err := w.js.Stream(attempt, name); err == nil && st.CachedInfo().Cluster != nil {
			leader = st.CachedInfo().Cluster.Leader
		}
		if leader != "" && leader != w.lead && time.Since(asked) > time.Second {
			asked = time.Now()
			_, _ = w.nc.RequestWithContext(attempt, "$JS.API.STREAM.LEADER.STEPDOWN."+name, []byte(`{"placement":{"preferred":"`+w.lead+`"}}`))
		}
		cancel()
		switch {
		case leader == w.lead:
			return
		case ctx.Err() != nil:
			w.log.Warn("stream did not move to the preferred leader", "stream", name, "preferred", w.lead, "leader", leader)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// read reads batches from seq on, at most so many and of about size bytes; none when there is none yet. What a replica
// has it has in order, so what comes may be too little and is never out of order.
func (w *wire) read(ctx context.Context, stream string, seq uint64, batches, size int) ([]stored, error) {
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	inbox := w.nc.NewInbox()
	sub, err := w.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, ended(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // it is gone with the connection at the latest
	body := fmt.Sprintf(`{"seq":%d,"batch":%d,"max_bytes":%d}`, seq, batches, size)
	if err := w.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, []byte(body)); err != nil {
		return nil, ended(err)
	}
	var out []stored
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return out, fmt.Errorf("read %s from %d: %w", stream, seq, ended(err))
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			b, err := takeStored(m)
			if err != nil {
				return out, err
			}
			out = append(out, b)
		case "204", "404":
			return out, nil
		default:
			return out, fmt.Errorf("read %s from %d: %s %s", stream, seq, status, m.Header.Get("Description"))
		}
	}
}

func takeStored(m *nats.Msg) (stored, error) {
	n, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return stored{}, fmt.Errorf("message without a sequence on %s", m.Subject)
	}
	return stored{n, m.Data}, nil
}

// get reads the batch at seq, from any replica or, if the nearest does not have it, from the leader; ErrNotFound when it
// is not there any more.
func (w *wire) get(ctx context.Context, seq uint64) ([]byte, error) {
	body := []byte(`{"seq":` + strconv.FormatUint(seq, 10) + `}`)
	m, err := w.request(ctx, "$JS.API.DIRECT.GET."+journalStream, body)
	if err == nil && m.Header.Get("Status") == "" {
		return m.Data, nil
	}
	if err != nil && errors.Is(err, store.ErrClosed) {
		return nil, err
	}
	b, err := w.find(ctx, journalStream, string(body))
	return b.data, err
}

// find reads a message from a stream's leader; ErrNotFound when there is none.
func (w *wire) find(ctx context.Context, stream, body string) (stored, error) {
	var got struct {
		Error   *apiError `json:"error"`
		Message *struct {
			Seq  uint64 `json:"seq"`
			Data []byte `json:"data"`
		} `json:"message"`
	}
	if err := w.ask(ctx, "$JS.API.STREAM.MSG.GET."+stream, []byte(body), &got); err != nil {
		return stored{}, err
	}
	switch {
	case got.Error != nil && got.Error.ErrCode == codeNoMessage || got.Error == nil && got.Message == nil:
		return stored{}, store.ErrNotFound
	case got.Error != nil:
		return stored{}, got.Error
	}
	return stored{got.Message.Seq, got.Message.Data}, nil
}

// info asks a stream's leader what it holds.
func (w *wire) info(ctx context.Context, stream string) (extentInfo, error) {
	var got struct {
		Error *apiError `json:"error"`
		State struct {
			First uint64 `json:"first_seq"`
			Last  uint64 `json:"last_seq"`
		} `json:"state"`
	}
	if err := w.ask(ctx, "$JS.API.STREAM.INFO."+stream, nil, &got); err != nil {
		return extentInfo{}, err
	}
	switch {
	case got.Error != nil && got.Error.ErrCode == codeNoStream:
		return extentInfo{}, errNoJournal
	case got.Error != nil:
		return extentInfo{}, got.Error
	}
	return extentInfo{got.State.First, got.State.Last}, nil
}

// appear makes an author visible: whoever asks under its name gets an answer.
func (w *wire) appear(author uint64) error {
	_, err := w.nc.Subscribe(present+strconv.FormatUint(author, 36), func(m *nats.Msg) { _ = m.Respond(nil) })
	if err != nil {
		return fmt.Errorf("be seen by others: %w", ended(err))
	}
	return nil
}

// gone reports whether nobody answers for an author. A node that only takes long does not count.
func (w *wire) gone(ctx context.Context, author uint64) bool {
	_, err := w.request(ctx, present+strconv.FormatUint(author, 36), nil)
	return errors.Is(err, nats.ErrNoResponders)
}

// purge removes what a request says.
func (w *wire) purge(ctx context.Context, stream, body string) error {
	var got struct {
		Error *apiError `json:"error"`
	}
	if err := w.ask(ctx, "$JS.API.STREAM.PURGE."+stream, []byte(body), &got); err != nil {
		return err
	}
	if got.Error != nil {
		return got.Error
	}
	return nil
}

// publish stores one message in a stream and waits for that.
func (w *wire) publish(ctx context.Context, subject string, data []byte) (seq uint64, err error) {
	var got pubAck
	if err := w.ask(ctx, subject, data, &got); err != nil {
		return 0, err
	}
	if got.Error != nil {
		return 0, got.Error
	}
	return got.Seq, nil
}

// flush waits until the server knows of every subscription so far.
func (w *wire) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	return ended(w.nc.FlushWithContext(ctx))
}

func (w *wire) ask(ctx context.Context, subject string, body []byte, answer any) error {
	m, err := w.request(ctx, subject, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		return fmt.Errorf("answer to %s: %w", subject, err)
	}
	return nil
}

func (w *wire) request(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	m, err := w.nc.RequestWithContext(ctx, subject, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", subject, ended(err))
	}
	return m, nil
}

// pubAck is JetStream's answer to an append.
type pubAck struct {
	Error *apiError `json:"error"`
	Seq   uint64    `json:"seq"`
}

// apiError is the error part of an answer of JetStream.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string { return fmt.Sprintf("jetstream: %s (%d)", e.Description, e.ErrCode) }

// ended turns the error of a closed connection, which is of the store alone, into the store's.
func ended(err error) error {
	if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrBadSubscription) {
		return store.ErrClosed
	}
	return err
}

// acks takes JetStream's answers to appends. An append that is committed is seen applied, which is what counts: an answer
// matters when it is a refusal, or when it is here and the batch is not.
type acks struct {
	prefix string
	sub    *nats.Subscription
}

func (w *wire) listenAcks(nack func(number uint64, err error), stored func(seq uint64)) (*acks, error) {
	a := &acks{prefix: w.nc.NewInbox() + "."}
	var err error
	a.sub, err = w.nc.Subscribe(a.prefix+"*", func(m *nats.Msg) {
		number, err := strconv.ParseUint(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], 36, 64)
		if err != nil {
			return
		}
		if len(m.Data) == 0 {
			nack(number, nats.ErrNoResponders)
			return
		}
		var ack pubAck
		switch err := json.Unmarshal(m.Data, &ack); {
		case err != nil:
			nack(number, fmt.Errorf("answer to an append: %w", err))
		case ack.Error != nil:
			nack(number, ack.Error)
		default:
			stored(ack.Seq)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to answers: %w", ended(err))
	}
	return a, nil
}

// append sends a batch.
func (w *wire) append(a *acks, number uint64, data []byte) error {
	return ended(w.nc.PublishRequest(journalSubject, a.prefix+strconv.FormatUint(number, 36), data))
}
