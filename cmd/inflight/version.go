package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, its revision, and the Go version",
		Args:  arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := fmt.Sprintf("inflight %s", toolVersion())
			if revision := toolRevision(); revision != "" {
				text += " revision " + revision
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s/%s\n", text, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// toolVersion is the module's version, "devel" for a build from a checkout.
func toolVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

// toolRevision is the commit that the build recorded, with "+dirty" for a changed tree; "" when it recorded none.
func toolRevision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + dirty
}
