package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// Why a client was not let in.
var (
	ErrCredentials = errors.New("wrong user name or password")
	ErrAnonymous   = errors.New("anonymous clients are not allowed")
	ErrOtherName   = errors.New("the user name is not the certificate's Common Name")
)

// Files says where a Policy comes from. An empty name means that there is no such file.
type Files struct {
	Passwords string
	ACL       string
	Anonymous bool // clients that prove no name are let in
}

// Policy is who may connect and do what. A value is immutable.
type Policy struct {
	Passwords *Passwords // nil: nobody has a password
	ACL       *ACL       // nil: everything is allowed
	Anonymous bool
}

// Load reads the files; it reports the problems of both at once.
func Load(f Files) (*Policy, error) {
	p := &Policy{Anonymous: f.Anonymous}
	var errs [2]error
	if f.Passwords != "" {
		p.Passwords, errs[0] = ReadPasswords(f.Passwords)
	}
	if f.ACL != "" {
		p.ACL, errs[1] = ReadACL(f.ACL)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return p, nil
}

// Credentials are what a connection proved and what its CONNECT holds.
type Credentials struct {
	Proven      string // the name that a client certificate proved; "": none
	HasUser     bool
	User        string
	HasPassword bool
	Password    []byte
	ClientID    string
}

// Authenticate says who the client is. A certificate needs no password, but a CONNECT that names somebody else is refused.
// Without a password file a name that came with a CONNECT proves nothing, and the client is anonymous. The error is
// ErrCredentials, ErrAnonymous, ErrOtherName, ErrBusy or ctx's.
func (p *Policy) Authenticate(ctx context.Context, c *Checker, cred Credentials) (Identity, error) {
	who := Identity{ClientID: cred.ClientID}
	switch {
	case cred.Proven != "":
		if cred.HasUser && cred.User != cred.Proven {
			return Identity{}, ErrOtherName
		}
		who.User = cred.Proven
		return who, nil
	case p.Passwords != nil && cred.HasUser:
		if !cred.HasPassword {
			return Identity{}, ErrCredentials
		}
		ok, err := c.Check(ctx, p.Passwords, cred.User, cred.Password)
		if err != nil {
			return Identity{}, fmt.Errorf("check password: %w", err)
		}
		if !ok {
			return Identity{}, ErrCredentials
		}
		who.User = cred.User
		return who, nil
	case p.Anonymous:
		return who, nil
	}
	return Identity{}, ErrAnonymous
}

// Keeps reports whether a user whom a password of before let in is still one, with the same password.
func (p *Policy) Keeps(before *Policy, user string) bool {
	if user == "" {
		return p.Anonymous
	}
	if before.Passwords == nil || p.Passwords == nil {
		return false
	}
	hash, ok := p.Passwords.hashes[user]
	return ok && bytes.Equal(hash, before.Passwords.hashes[user])
}
