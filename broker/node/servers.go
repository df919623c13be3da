package node

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Servers says how to reach NATS servers that are already running. The zero value names none.
type Servers struct {
	// URLs are nats:// or tls://HOST:PORT, of one server or of several of one cluster. user:password@ or token@ before the host
	// says who the broker is; what the first URL says goes for those that say nothing.
	URLs  []string
	Creds string // credentials file: a user's JWT and its seed
	NKey  string // file of a user's nkey seed
	CA    string // file of the CA of the servers' certificates, PEM; "": those of the system
	Cert  string // the broker's own certificate file, PEM
	Key   string // and its key
}

// redacted stands for a password or a token wherever a URL is shown.
const redacted = "xxxxx"

// Given reports whether any of it is set.
func (s *Servers) Given() bool {
	return len(s.URLs) > 0 || s.Creds != "" || s.NKey != "" || s.CA != "" || s.Cert != "" || s.Key != ""
}

// Validate reports every problem at once, and no password. It reads no file.
func (s *Servers) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(s.URLs) == 0 {
		bad("credentials or certificates for NATS, but no server: give one with --nats")
	}
	var proofs []string
	for i, text := range s.URLs {
		u, err := url.Parse(text)
		switch {
		case err != nil: // the error shows the whole URL
			bad("NATS server %d of %d is no URL: want nats://HOST:PORT or tls://HOST:PORT", i+1, len(s.URLs))
			continue
		case u.Scheme != "nats" && u.Scheme != "tls", u.Hostname() == "", u.Port() == "", u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "":
			bad("NATS server %q: want nats://HOST:PORT or tls://HOST:PORT", Redact(text))
		}
		if u.User == nil {
			continue
		}
		if !slices.Contains(proofs, "a user in --nats") {
			proofs = append(proofs, "a user in --nats")
		}
		if password, ok := u.User.Password(); password == redacted || !ok && u.User.Username() == redacted {
			bad("NATS server %q: the password or token was taken out before it was printed: put it back", Redact(text))
		}
	}
	if s.Creds != "" {
		proofs = append(proofs, "--nats-creds")
	}
	if s.NKey != "" {
		proofs = append(proofs, "--nats-nkey")
	}
	if len(proofs) > 1 {
		bad("%s: a broker is one user, give one of them", strings.Join(proofs, " and "))
	}
	if (s.Cert == "") != (s.Key == "") {
		bad("a certificate for NATS needs its key, and a key its certificate: give --nats-cert and --nats-key")
	}
	return errors.Join(errs...)
}

// resolved are the URLs with what the first one says about the user.
func (s *Servers) resolved() []string {
	urls := make([]string, len(s.URLs))
	var user *url.Userinfo
	for i, text := range s.URLs {
		u, _ := url.Parse(text)
		if i == 0 {
			user = u.User
		}
		if u.User == nil {
			u.User = user
		}
		urls[i] = u.String()
	}
	return urls
}

// String names the servers without a password or token.
func (s *Servers) String() string {
	shown := make([]string, len(s.URLs))
	for i, text := range s.URLs {
		shown[i] = Redact(text)
	}
	return strings.Join(shown, ",")
}

// userinfo is what stands between the scheme and the host of a URL. It takes too much rather than too little of one that
// is not well formed.
var userinfo = regexp.MustCompile(`://[^\s"']*@`)

// Redact takes the password or token out of every URL in a text, and leaves the user's name.
func Redact(text string) string {
	return userinfo.ReplaceAllStringFunc(text, func(found string) string {
		if user, _, ok := strings.Cut(found[len("://"):], ":"); ok {
			return "://" + user + ":" + redacted + "@"
		}
		return "://" + redacted + "@"
	})
}
