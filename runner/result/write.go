package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
)

// ErrNoSpace is what a full disk under the run's directory comes back as, whatever was being written.
var ErrNoSpace = errors.New("no space left on the disk: free some, or choose another directory")

// Write stores r as result.json in dir, which must exist. A reader sees the old file or the whole new one, never a part:
// the bytes go to a temporary file in the same directory, to the disk, and then into place. An empty Schema is filled in.
//
// A number that JSON cannot hold (NaN, infinity) is an error that names the field, and nothing is written.
func Write(dir string, r *Result) error {
	data, err := Encode(r)
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return WriteFile(filepath.Join(dir, FileName), data)
}

// Encode returns r as the bytes of a result.json, indented so that two of them can be compared with diff.
func Encode(r *Result) ([]byte, error) {
	if path, bad := notFinite(reflect.ValueOf(r), nil); path != "" {
		return nil, fmt.Errorf("%s is %v, which JSON cannot hold", path, bad)
	}
	c := *r
	if c.Schema == "" {
		c.Schema = Schema
	}
	// Absent lists are written as [], so that a reader in another language need not expect null.
	if c.Arms == nil {
		c.Arms = []Arm{}
	}
	if c.Cells == nil {
		c.Cells = []Cell{}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // target strings are full of &
	enc.SetIndent("", "  ")
	if err := enc.Encode(&c); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// WriteFile puts data at path as Write does: whole or not at all. The directory must exist. The renderings of a result
// are written with it too.
func WriteFile(path string, data []byte) (err error) {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	f, err := os.CreateTemp(dir, "."+base+".*.tmp")
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing %s: the directory does not exist", path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, reason(err))
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
			err = fmt.Errorf("writing %s: %w", path, reason(err))
		}
	}()
	if err := fill(f, data); err != nil {
		return err
	}
	if err := os.Chmod(f.Name(), 0o644); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// file is what fill needs of an *os.File.
type file interface {
	io.Writer
	Sync() error
	Close() error
}

// fill writes, syncs and closes. A file system may report that it is full at any of the three.
func fill(f file, data []byte) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// reason strips the temporary name, which means nothing to the reader.
func reason(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, errDiskFull) {
		return ErrNoSpace
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return l.Err
	}
	return err
}

// notFinite finds the first number in v that JSON cannot hold and returns its path in the spelling of the JSON.
func notFinite(v reflect.Value, path []string) (string, float64) {
	switch v.Kind() {
	case reflect.Float64, reflect.Float32:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return strings.TrimPrefix(strings.Join(path, ""), "."), f
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return notFinite(v.Elem(), path)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if !field.IsExported() {
				continue
			}
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" {
				name = field.Name
			}
			if p, bad := notFinite(v.Field(i), append(path, "."+name)); p != "" {
				return p, bad
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if p, bad := notFinite(v.Index(i), append(path, fmt.Sprintf("[%d]", i))); p != "" {
				return p, bad
			}
		}
	}
	return "", 0
}
