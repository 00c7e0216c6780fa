package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/ca/material"
)

// loadAuthority reads the key and certificates in dir, which is laid out as
// Istio's cacerts, and proves that they can sign.
func loadAuthority(now time.Time, dir string, profile ca.Profile, log *slog.Logger) (*ca.Authority, error) {
	if dir == "" {
		return nil, &exitError{exitUsage, errors.New("--material names no directory; it must hold ca-cert.pem, ca-key.pem, cert-chain.pem and root-cert.pem")}
	}
	m, warnings, err := material.Load(now, func(name string) ([]byte, error) {
		return os.ReadFile(filepath.Join(dir, name))
	})
	if err != nil {
		return nil, fmt.Errorf("key material in %s:\n%w", dir, err)
	}
	for _, w := range warnings {
		log.Warn("key material", slog.String("file", filepath.Join(dir, w.File)), slog.Int("line", w.Line), slog.String("warning", w.Text))
	}
	authority, err := ca.NewAuthority(now, m, profile)
	if err != nil {
		return nil, fmt.Errorf("key material in %s: %w", dir, err)
	}
	for _, w := range authority.Warnings(now) {
		log.Warn("key material", slog.String("warning", w))
	}
	return authority, nil
}
