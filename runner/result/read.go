package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// MaxBytes bounds the size of a result.json that Read accepts. The largest run that the scenario limits allow stays
// well below it.
const MaxBytes = 256 << 20

// schemaPrefix is what every version of Schema has in common.
const schemaPrefix = "inflight.result/"

// Read reads the result of a run. The path is the run's directory or the file itself.
//
// Errors name the file and what is wrong with it: it is missing, ends early, is not an inflight result, or was written
// by a newer inflight. Keys that this version does not know are ignored, so that a field can be added without a new
// schema.
func Read(path string) (*Result, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, FileName)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the result: %w: is %s the directory of a run?", plain(err), filepath.Dir(path))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the result: %w", plain(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the result: %w", plain(err))
	}
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("reading the result: %s: larger than %d MiB, which no run leaves behind", path, MaxBytes>>20)
	}
	r, err := Decode(data)
	if err != nil {
		return nil, fmt.Errorf("reading the result: %s: %w", path, err)
	}
	return r, nil
}

// Decode is Read without the file: data is the content of a result.json.
func Decode(data []byte) (*Result, error) {
	// The schema comes first: a file of another kind is best told that, not that some field has the wrong type.
	var head struct {
		Schema *json.RawMessage `json:"schema"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&head); err != nil {
		return nil, explain(data, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("line %d: there is something behind the end of the result", line(data, dec.InputOffset()))
	}
	var schema string
	if head.Schema == nil || json.Unmarshal(*head.Schema, &schema) != nil {
		return nil, errors.New("is not an inflight result: it has no schema")
	}
	if err := checkSchema(schema); err != nil {
		return nil, err
	}
	r := new(Result)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, explain(data, err)
	}
	return r, nil
}

func checkSchema(schema string) error {
	if schema == Schema {
		return nil
	}
	number, ok := strings.CutPrefix(schema, schemaPrefix)
	theirs, err := strconv.Atoi(number)
	ours, _ := strconv.Atoi(strings.TrimPrefix(Schema, schemaPrefix))
	switch {
	case !ok || err != nil || theirs < 1:
		return fmt.Errorf("is not an inflight result: its schema is %q, not %q", schema, Schema)
	case theirs > ours:
		return fmt.Errorf("was written by a newer inflight (schema %q, this one reads %q): update inflight", schema, Schema)
	default:
		return fmt.Errorf("has the old schema %q, this inflight reads %q: use the inflight that wrote it", schema, Schema)
	}
}

// explain turns an error of encoding/json into one that says where.
func explain(data []byte, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("is empty: the run may have been killed, or the disk was full")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &syntax) && syntax.Offset >= int64(len(data)):
		return fmt.Errorf("ends early, at line %d: it was cut off while being copied or written", line(data, int64(len(data))))
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: is not JSON: %w", line(data, syntax.Offset), err)
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Errorf("is not an inflight result: it is a JSON %s, not an object", kind.Value)
	case errors.As(err, &kind):
		return fmt.Errorf("line %d: %s is a %s, want %s", line(data, kind.Offset), kind.Field, kind.Value, kind.Type)
	default:
		return err
	}
}

// line counts from 1.
func line(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n"))
}

// plain shortens an error of package os to "PATH: reason"; the operation is in the sentence around it.
func plain(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return fmt.Errorf("%s: %w", p.Path, p.Err)
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return fmt.Errorf("%s: %w", l.New, l.Err)
	}
	return err
}
