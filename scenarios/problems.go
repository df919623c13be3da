package scenarios

import "strings"

// NewFileError reports problems in a file that is not a scenario in the same form: data is the whole file, whose offending
// lines are shown. problems must not be empty.
func NewFileError(file string, data []byte, problems []Problem) *FileError {
	return &FileError{Problems: problems, file: file, lines: strings.Split(string(data), "\n")}
}
