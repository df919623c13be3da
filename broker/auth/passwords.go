package auth

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/bcrypt"
)

const (
	maxCost     = 16      // about 4 s of one core for each check; more would be a denial of service by configuration
	maxPassword = 72      // bytes; bcrypt ignores the rest, which must not count as equal
	maxFile     = 8 << 20 // bytes of either file
	maxUser     = 65535   // bytes of a CONNECT's User Name
)

// bcryptHash is what a hash looks like. $2x$ marks hashes of a broken implementation, which cannot be checked.
var bcryptHash = regexp.MustCompile(`^\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}$`)

// Passwords are the users of a password file and their hashes. A value is immutable.
type Passwords struct {
	hashes map[string][]byte
	dummy  []byte // checked for a user that is not there, so that the time does not tell
}

// ReadPasswords reads a password file; an error names the file and the line.
func ReadPasswords(path string) (*Passwords, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("password file: %w", err)
	}
	return ParsePasswords(path, data)
}

// ParsePasswords parses the content of a password file. name is what errors call the file.
func ParsePasswords(name string, data []byte) (*Passwords, error) {
	p := &Passwords{hashes: make(map[string][]byte)}
	first := make(map[string]int)
	highest := bcrypt.MinCost
	n := 0
	for line := range bytes.Lines(data) {
		n++
		user, hash, ok, err := passwordLine(string(line))
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		if !ok {
			continue
		}
		if at := first[user]; at > 0 {
			return nil, fmt.Errorf("%s:%d: user %q is already on line %d", name, n, user, at)
		}
		first[user] = n
		p.hashes[user] = []byte(hash)
		cost, _ := strconv.Atoi(bcryptHash.FindStringSubmatch(hash)[1])
		highest = max(highest, cost)
	}
	p.dummy = fmt.Appendf(nil, "$2a$%02d$%s", highest, strings.Repeat(".", 53))
	return p, nil
}

// passwordLine splits one line; ok is false for one that holds no user.
func passwordLine(line string) (user, hash string, ok bool, err error) {
	line = strings.TrimRight(line, "\r\n")
	if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
		return "", "", false, nil
	}
	colon := strings.LastIndexByte(line, ':')
	if colon < 0 {
		return "", "", false, errors.New("want user:hash")
	}
	user, hash = line[:colon], line[colon+1:]
	if err := ValidUser(user); err != nil {
		return "", "", false, err
	}
	m := bcryptHash.FindStringSubmatch(hash)
	if m == nil {
		return "", "", false, fmt.Errorf("the hash of user %q is not of bcrypt (make it with: inflight broker passwd)", user)
	}
	if cost, _ := strconv.Atoi(m[1]); cost < bcrypt.MinCost || cost > maxCost {
		return "", "", false, fmt.Errorf("the hash of user %q has cost %d, want %d to %d", user, cost, bcrypt.MinCost, maxCost)
	}
	return user, hash, true, nil
}

// ValidUser reports whether a password file can hold the user name.
func ValidUser(user string) error {
	switch {
	case user == "":
		return errors.New("the user name is empty")
	case len(user) > maxUser:
		return fmt.Errorf("the user name has %d bytes, at most %d can be sent", len(user), maxUser)
	case !utf8.ValidString(user):
		return fmt.Errorf("user name %q is not valid UTF-8", user)
	case user[0] == '#':
		return fmt.Errorf("user name %q starts with '#', which marks comments", user)
	case strings.ContainsFunc(user, unicode.IsControl):
		return fmt.Errorf("user name %q holds a control character", user)
	case strings.TrimSpace(user) == "":
		return fmt.Errorf("user name %q is blank", user)
	}
	return nil
}

// HashPassword makes the hash of a password for a password file: bcrypt at its default cost. More than 72 bytes are
// refused, because bcrypt would ignore the rest.
func HashPassword(password []byte) (string, error) {
	switch {
	case len(password) == 0:
		return "", errors.New("the password is empty")
	case len(password) > maxPassword:
		return "", fmt.Errorf("the password has %d bytes, bcrypt takes at most %d", len(password), maxPassword)
	}
	h, err := bcrypt.GenerateFromPassword(password, bcrypt.DefaultCost)
	return string(h), err
}

// SetUser returns the content of a password file with the user's hash changed or, for a new user, added at the end. Other
// lines, comments too, stay as they are. created says which it was.
func SetUser(name string, data []byte, user, hash string) (edited []byte, created bool, err error) {
	if err := ValidUser(user); err != nil {
		return nil, false, err
	}
	entry := user + ":" + hash + "\n"
	edited, found, err := replaceUser(name, data, user, entry)
	if err != nil || found {
		return edited, false, err
	}
	if len(edited) > 0 && edited[len(edited)-1] != '\n' {
		edited = append(edited, '\n')
	}
	return append(edited, entry...), true, nil
}

// RemoveUser returns the content of a password file without the user, and whether the user was there.
func RemoveUser(name string, data []byte, user string) (edited []byte, found bool, err error) {
	return replaceUser(name, data, user, "")
}

func replaceUser(name string, data []byte, user, entry string) (edited []byte, found bool, err error) {
	// A file with an error is not touched: nobody knows what its lines were meant to be.
	if _, err := ParsePasswords(name, data); err != nil {
		return nil, false, err
	}
	for line := range bytes.Lines(data) {
		if u, _, ok, _ := passwordLine(string(line)); ok && u == user {
			edited = append(edited, entry...)
			found = true
			continue
		}
		edited = append(edited, line...)
	}
	return edited, found, nil
}

// readFile reads a file of a bounded size.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", path, info.Size(), maxFile)
	}
	return os.ReadFile(path)
}
