package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			return check(config, dir, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration `file`")
	cmd.Flags().StringVar(&dir, "material", "", "`directory` with ca-cert.pem, ca-key.pem, cert-chain.pem and root-cert.pem")
	return cmd
}

func check(config, dir string, stdout, stderr io.Writer) error {
	if config == "" && dir == "" {
		return &exitError{exitUsage, errors.New("nothing to check: name a file with --config, or a directory with --material")}
	}
	c, err := loadConfig(config)
	if err != nil {
		return &exitError{exitRefused, err}
	}
	var out strings.Builder
	if config != "" {
		fmt.Fprintf(&out, "configuration %s: good\n  trust domain  %s\n  node agents   %s\n", config, c.TrustDomain, strings.Join(c.NodeAgents, " "))
	}
	for _, w := range c.warnings() {
		fmt.Fprintf(&out, "  warning       %s\n", w)
	}
	if dir != "" {
		log := slog.New(slog.NewTextHandler(stderr, nil))
		authority, err := loadAuthority(time.Now(), dir, c.profile(), log)
		if err != nil {
			return &exitError{exitRefused, err}
		}
		fmt.Fprintf(&out, "key material in %s: good\n  issuer        %s\n  root          %s\n  expires       %s\n", dir,
			ca.Describe(authority.Issuer()), ca.Describe(authority.Root()), authority.NotAfter().UTC().Format(time.RFC3339))
	}
	_, err = io.WriteString(stdout, out.String())
	return err
}
