package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/k8s/token"
)

// mountedToken is where Kubernetes mounts the token of our own account.
const mountedToken = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path, not a credential

// discoveryTimeout bounds how long a start may wait for the API server to say
// which issuer it has.
const discoveryTimeout = 10 * time.Second

// issuers returns the token issuers to accept: those configured, or else the
// issuer of our own token and the one that the API server says it is.
func (k *kube) issuers(ctx context.Context, configured []string, log *slog.Logger) ([]string, error) {
	if len(configured) > 0 {
		return configured, nil
	}
	var issuers []string
	if iss, err := token.IssuerOf(k.bearer); err == nil {
		issuers = append(issuers, iss)
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	iss, err := token.DiscoverIssuer(ctx, k.typed.Discovery().RESTClient())
	switch {
	case err == nil && !slices.Contains(issuers, iss):
		issuers = append(issuers, iss)
	case err != nil && len(issuers) == 0:
		return nil, fmt.Errorf("finding the issuer of tokens: %w\nsee which cluster is asked, and whether it answers, with: %s get --raw /.well-known/openid-configuration\nif it is the right one, set issuers in the configuration to what kube-apiserver has as --service-account-issuer", err, k.kubectl)
	case err != nil:
		log.Warn("the API server does not say which issuer its tokens have, so only that of our own token is accepted; tokens of any other are refused until a restart",
			slog.Any("error", err), slog.Any("issuers", issuers),
			slog.String("next", "set issuers in the configuration to what kube-apiserver has as --service-account-issuer"))
	}
	return issuers, nil
}

// ownAccount returns the service account of our own token, or the zero account
// if we have no token. That of a token which names no account is warned about.
func (k *kube) ownAccount(log *slog.Logger) authz.ServiceAccount {
	own, err := k.account()
	if err != nil {
		log.Warn("our own service account is unknown, so only the configured accounts are protected",
			slog.Any("error", err), slog.String("next", "name the account of this server in protected in the configuration"))
	}
	return own
}

func (k *kube) account() (authz.ServiceAccount, error) {
	own := k.bearer
	if own == "" {
		data, err := os.ReadFile(k.mounted)
		if errors.Is(err, fs.ErrNotExist) {
			return authz.ServiceAccount{}, nil
		}
		if err != nil {
			return authz.ServiceAccount{}, fmt.Errorf("reading our own token: %w", err)
		}
		own = strings.TrimSpace(string(data))
	}
	subject, err := token.SubjectOf(own)
	if err != nil {
		return authz.ServiceAccount{}, err
	}
	name, _ := strings.CutPrefix(subject, "system:serviceaccount:")
	accounts, err := parseAccounts([]string{strings.Replace(name, ":", "/", 1)})
	if err != nil || name == subject {
		return authz.ServiceAccount{}, fmt.Errorf("our own token is that of %q, which is not a service account", subject)
	}
	return accounts[0], nil
}
