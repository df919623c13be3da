package scenarios

import (
	"embed"
	"slices"
	"strings"
)

//go:embed targets/*.yaml targets/*/main.go
var targetFiles embed.FS

// Target returns the description of a known broker, the bytes of targets/NAME.yaml as they are, and whether there is
// one. Package runner/target gives them their meaning.
func Target(name string) ([]byte, bool) {
	// A name with a slash or dots must not reach another file of this package.
	if !slices.Contains(TargetNames(), name) {
		return nil, false
	}
	data, err := targetFiles.ReadFile("targets/" + name + ".yaml")
	return data, err == nil
}

// TargetProgram returns the source of the command around a broker that is a library, the bytes of targets/NAME/main.go, and
// whether there is one.
func TargetProgram(name string) ([]byte, bool) {
	if !slices.Contains(TargetNames(), name) {
		return nil, false
	}
	data, err := targetFiles.ReadFile("targets/" + name + "/main.go")
	return data, err == nil
}

// TargetNames lists the known brokers in alphabetical order.
func TargetNames() []string {
	entries, err := targetFiles.ReadDir("targets")
	if err != nil {
		return nil // cannot happen: the directory is part of the program
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
