package main

import (
	"errors"
	"strings"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/spf13/cobra"
)

func newCheck() *cobra.Command {
	var config, dir string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration and key material before the server gets them",
		Long: `Check a configuration file, and the key material if --material is given, just
as serve does at its start. Nothing is contacted and nothing written.

Exit codes: 0 good, 2 wrong usage, 3 something is wrong.`,
		Args: noArgs,
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration `file`")
	cmd.Flags().StringVar(&dir, "material", "", "`directory` with ca-cert.pem, ca-key.pem, cert-chain.pem and root-cert.pem")
	return reports(cmd, func(_ *cobra.Command, p *printer) error {
		r, err := check(config, dir, time.Now())
		if err != nil {
			return err
		}
		return p.print(r)
	})
}

func check(config, dir string, now time.Time) (*checkReport, error) {
	if config == "" && dir == "" {
		return nil, &exitError{exitUsage, errors.New("nothing to check: name a file with --config, or a directory with --material")}
	}
	c, err := loadConfig(config)
	if err != nil {
		return nil, &exitError{exitRefused, err}
	}
	r := &checkReport{}
	if config != "" {
		r.Configuration = &checkedConfig{config, c.TrustDomain, c.NodeAgents, append([]string{}, c.warnings()...)}
	}
	if dir != "" {
		authority, warnings, err := loadAuthority(now, dir, c, kubectl(""))
		if err != nil {
			return nil, &exitError{exitRefused, err}
		}
		r.Material = &checkedMaterial{
			dir, ca.Describe(authority.Issuer()), ca.Describe(authority.Root()), authority.NotAfter().UTC(), append([]string{}, warnings...),
		}
	}
	return r, nil
}

// A checkReport has what was checked and is good.
type checkReport struct {
	Configuration *checkedConfig   `json:"configuration,omitempty"`
	Material      *checkedMaterial `json:"material,omitempty"`
}

type checkedConfig struct {
	File        string   `json:"file"`
	TrustDomain string   `json:"trustDomain"`
	NodeAgents  []string `json:"nodeAgents"`
	Warnings    []string `json:"warnings"`
}

type checkedMaterial struct {
	Directory string    `json:"directory"`
	Issuer    string    `json:"issuer"`
	Root      string    `json:"root"`
	Expires   time.Time `json:"expires"`
	Warnings  []string  `json:"warnings"`
}

func (r *checkReport) text(s *sheet) {
	good := s.paint(green, "good")
	list := func(warnings []string, rows ...[]cell) {
		for _, w := range warnings {
			rows = append(rows, []cell{{}, {"warning", yellow}, {text: w}})
		}
		s.table(rows)
	}
	if c := r.Configuration; c != nil {
		s.printf("configuration %s: %s\n", c.File, good)
		list(c.Warnings, row("", "trust domain", c.TrustDomain), row("", "node agents", strings.Join(c.NodeAgents, " ")))
	}
	if m := r.Material; m != nil {
		s.printf("key material in %s: %s\n", m.Directory, good)
		list(m.Warnings, row("", "issuer", m.Issuer), row("", "root", m.Root), row("", "expires", m.Expires.Format(time.RFC3339)))
	}
}
