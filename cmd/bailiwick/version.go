package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
	}
	return reports(cmd, func(_ *cobra.Command, p *printer) error {
		return p.print(&versionReport{version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
	})
}

// A versionReport says what was built, and for what.
type versionReport struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (v *versionReport) text(s *sheet) { s.printf("bailiwick %s %s %s\n", v.Version, v.Go, v.Platform) }

// version returns the version of the module that was built, "(devel)" for one
// that was built from a checkout without version control.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	return info.Main.Version
}
