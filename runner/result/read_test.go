package result

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDecodeSaysWhatIsWrong(t *testing.T) {
	tests := []struct {
		name, data, want string
	}{
		{"empty file", "", "is empty"},
		{"blank file", " \n\n", "is empty"},
		{"cut in the middle of a key", "{\n  \"schema\": \"inflight.result/1\",\n  \"cel", "ends early, at line 3"},
		{"cut behind a comma", `{"schema": "inflight.result/1",`, "ends early, at line 1"},
		{"not JSON", "hello", "line 1: is not JSON"},
		{"a list", "[1, 2]", "is not an inflight result: it is a JSON array"},
		{"no schema", `{"cells": []}`, "is not an inflight result: it has no schema"},
		{"schema of another type", `{"schema": 1}`, "is not an inflight result: it has no schema"},
		{"foreign schema", `{"schema": "vegeta/12"}`, `is not an inflight result: its schema is "vegeta/12"`},
		{"foreign schema wins over a foreign type", `{"schema": "k6", "cells": 7}`, `its schema is "k6"`},
		{"garbled version", `{"schema": "inflight.result/next"}`, "is not an inflight result"},
		{"newer schema", `{"schema": "inflight.result/2"}`, "newer inflight (schema \"inflight.result/2\", this one reads \"inflight.result/1\"): update inflight"},
		{"version zero", `{"schema": "inflight.result/0"}`, "is not an inflight result"},
		{"field of the wrong type", "{\"schema\": \"inflight.result/1\",\n\"cells\": 7}", "line 2: cells is a number, want []result.Cell"},
		{"two results in one file", `{"schema": "inflight.result/1"}{}`, "behind the end"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r, err := Decode([]byte(test.data))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Decode(%q) = %v, %v; want an error with %q", test.data, r, err, test.want)
			}
		})
	}
}

func TestDecodeIgnoresKeysFromLater(t *testing.T) {
	r, err := Decode([]byte(`{"schema": "inflight.result/1", "colour": "blue", "partial": true}`))
	if err != nil || !r.Partial {
		t.Errorf("Decode = %+v, %v; want the known keys", r, err)
	}
}

func TestReadTakesDirectoryOrFile(t *testing.T) {
	dir := t.TempDir()
	if err := Write(dir, &Result{Trouble: "a & b"}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, FileName)} {
		r, err := Read(path)
		if err != nil || r.Trouble != "a & b" || r.Schema != Schema {
			t.Errorf("Read(%s) = %+v, %v", path, r, err)
		}
	}
}

func TestReadMissing(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "gone")} {
		_, err := Read(path)
		if err == nil || !strings.Contains(err.Error(), "the directory of a run?") {
			t.Errorf("Read(%s): %v; want the hint", path, err)
		}
		if strings.Count(err.Error(), "no such file") > 1 {
			t.Errorf("Read(%s) says it twice: %v", path, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	seed, err := Encode(&Result{Cells: []Cell{{Arm: "A", Blocks: []Block{{Block: 1}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(seed[:len(seed)/2])
	f.Add([]byte(`{"schema":"inflight.result/9"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Decode(data)
		if err != nil {
			return
		}
		// What was read can be written, and means the same.
		again, err := Encode(r)
		if err != nil {
			t.Fatalf("Encode of a decoded result: %v", err)
		}
		if !json.Valid(again) {
			t.Fatalf("Encode wrote no JSON: %s", again)
		}
		if _, err := Decode(again); err != nil {
			t.Fatalf("Decode of an encoded result: %v", err)
		}
	})
}

func TestReadUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything; run as another user, as .ci/run does")
	}
	dir := t.TempDir()
	if err := Write(dir, &Result{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, FileName), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("Read of an unreadable file: %v", err)
	}
}
