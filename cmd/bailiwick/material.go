package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/ca/material"
)

// loadAuthority reads the key and certificates in dir, which is laid out as
// Istio's cacerts, and proves that they can sign. What it warns of does not keep
// them from it.
func loadAuthority(now time.Time, dir string, profile ca.Profile) (*ca.Authority, []string, error) {
	if dir == "" {
		return nil, nil, &exitError{exitUsage, errors.New("--material names no directory; it must hold ca-cert.pem, ca-key.pem, cert-chain.pem and root-cert.pem")}
	}
	m, warnings, err := material.Load(now, func(name string) ([]byte, error) {
		return os.ReadFile(filepath.Join(dir, name))
	})
	if err != nil {
		return nil, nil, fmt.Errorf("key material in %s:\n%w", dir, err)
	}
	authority, err := ca.NewAuthority(now, m, profile)
	if err != nil {
		return nil, nil, fmt.Errorf("key material in %s:\n%w", dir, err)
	}
	var all []string
	for _, w := range warnings {
		all = append(all, filepath.Join(dir, w.String()))
	}
	return authority, append(all, authority.Warnings(now)...), nil
}
