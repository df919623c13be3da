package scenarios

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.yaml
var builtin embed.FS

// BuiltinNames lists the built-in scenarios in the order of the alphabet.
func BuiltinNames() []string {
	entries, err := builtin.ReadDir(".")
	if err != nil {
		return nil // an embedded directory can always be read
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Builtin returns the built-in scenario of that name. The error of an unknown one names those that there are.
func Builtin(name string) (*Scenario, error) {
	data, err := BuiltinFile(name)
	if err != nil {
		return nil, err
	}
	return Load("scenario "+name, data)
}

// BuiltinFile returns the file of the built-in scenario of that name. The error of an unknown one names those that there
// are.
func BuiltinFile(name string) ([]byte, error) {
	data, err := builtin.ReadFile(name + ".yaml")
	if err != nil {
		names := BuiltinNames()
		return nil, fmt.Errorf("no built-in scenario %q%s (there are: %s)", name, DidYouMean(name, names), strings.Join(names, ", "))
	}
	return data, nil
}
