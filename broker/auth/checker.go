package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"

	"golang.org/x/crypto/bcrypt"
)

// Limits of a Checker.
const (
	maxWaiting = 4096 // connections that wait for bcrypt; the next one is told to come again
	maxRight   = 65536
	maxWrong   = 4096
)

// ErrBusy is returned when too many passwords are waiting to be checked.
var ErrBusy = errors.New("too many passwords are waiting to be checked")

type digest [sha256.Size]byte

// Checker checks passwords with bcrypt, a few at a time, and remembers results. It is safe for use by many goroutines and
// outlives reloads.
type Checker struct {
	key     [32]byte
	slots   chan struct{} // one token for each check under way
	waiting chan struct{} // and for each that is under way or waits
	compare func(hash, password []byte) error

	mu    sync.Mutex
	right map[string]digest // by user: the last password that was right
	wrong map[digest]struct{}
	order []digest // of wrong, oldest first from next on
	next  int
}

// NewChecker returns a Checker that uses at most half of the processors.
func NewChecker() *Checker {
	c := &Checker{
		slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), waiting: make(chan struct{}, maxWaiting),
		compare: bcrypt.CompareHashAndPassword, right: make(map[string]digest), wrong: make(map[digest]struct{}),
	}
	_, _ = rand.Read(c.key[:]) // never fails
	return c
}

// Check reports whether the password is the user's. It waits for its turn, and returns ctx's error when that ends first,
// or ErrBusy at once when too many wait. An unknown user takes as long as a wrong password.
func (c *Checker) Check(ctx context.Context, p *Passwords, user string, password []byte) (bool, error) {
	if len(password) > maxPassword {
		return false, nil
	}
	hash, known := p.hashes[user]
	if !known {
		hash = p.dummy
	}
	d := c.digest(user, hash, password)
	if ok, found := c.remembered(user, d); found {
		return ok, nil
	}
	select {
	case c.waiting <- struct{}{}:
		defer func() { <-c.waiting }()
	default:
		return false, ErrBusy
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	// A storm of the same client needs one check: whoever waited finds its result.
	if ok, found := c.remembered(user, d); found {
		return ok, nil
	}
	ok := c.compare(hash, password) == nil && known
	c.remember(user, d, ok)
	return ok, nil
}

func (c *Checker) digest(user string, hash, password []byte) (d digest) {
	h := hmac.New(sha256.New, c.key[:])
	for _, part := range [][]byte{[]byte(user), hash, password} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	h.Sum(d[:0])
	return d
}

func (c *Checker) remembered(user string, d digest) (ok, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, there := c.right[user]; there && hmac.Equal(last[:], d[:]) {
		return true, true
	}
	_, found = c.wrong[d]
	return false, found
}

func (c *Checker) remember(user string, d digest, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok {
		if _, there := c.right[user]; !there && len(c.right) >= maxRight {
			clear(c.right) // only users of password files get here; a start from nothing is bounded as well
		}
		c.right[user] = d
		return
	}
	if len(c.order) < maxWrong {
		c.order = append(c.order, d)
	} else {
		delete(c.wrong, c.order[c.next])
		c.order[c.next] = d
		c.next = (c.next + 1) % maxWrong
	}
	c.wrong[d] = struct{}{}
}
