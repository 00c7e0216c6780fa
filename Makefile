# What people and CI run. "make help" lists it.

GO          ?= go
GOLANGCI     = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
BUF          = $(GO) run github.com/bufbuild/buf/cmd/buf@v1.75.0
FUZZTIME    ?= 30s
BENCHTIME   ?= 1s

# Modules of their own, so that what they need stays out of the product.
MODULES      = . e2e/kubernetes e2e/kubernetes/build e2e/istio

.DEFAULT_GOAL := help
.PHONY: help build demo test unit e2e lint fuzz mutants proto bench

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

build: ## build bin/bailiwick
	$(GO) build -trimpath -o bin/bailiwick ./cmd/bailiwick

demo: build ## see what is granted and what is refused, in seconds and without a cluster
	./bin/bailiwick demo

test: unit e2e ## everything that must pass, a real kube-apiserver and etcd included

unit: ## the tests that need no cluster, with the race detector
	@command -v openssl >/dev/null || { echo "openssl is missing: it judges our certificates; install it with your package manager (Debian: apt-get install openssl)"; exit 1; }
	@command -v cc >/dev/null || { echo "a C compiler is missing: the race detector needs one (Debian: apt-get install gcc libc6-dev)"; exit 1; }
	$(GO) test -race ./...

e2e: ## the built binary on a real kube-apiserver, and Istio's client (built from source at the first time: 10 to 15 minutes)
	cd e2e/kubernetes && $(GO) run ./prepare
	cd e2e/kubernetes && $(GO) test -count=1 -timeout 20m ./...
	@test -n "$$ZTUNNEL" || echo "e2e/kubernetes: TestRealZtunnel skipped: no ztunnel binary (ZTUNNEL names one)"
	cd e2e/istio && $(GO) test -count=1 -timeout 20m ./...

lint: ## static checks, formatting, stale generated code, untidy modules
	@for m in $(MODULES); do (cd $$m && $(GO) mod tidy -diff) || { echo "$$m/go.mod is not tidy: run go mod tidy there"; exit 1; }; done
	$(GOLANGCI) run ./...
	cd e2e/kubernetes && $(GOLANGCI) run --config ../../.golangci.yml ./...
	cd e2e/istio && $(GOLANGCI) run --config ../../.golangci.yml ./...
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && cp -r proto "$$tmp" && (cd "$$tmp/proto" && $(BUF) lint && $(BUF) generate) && \
		diff -r proto "$$tmp/proto" || { echo "proto/ is stale: run make proto, and commit what it made"; exit 1; }

fuzz: ## run every fuzz target for FUZZTIME (30s)
	@pkgs=$$($(GO) list -f '{{.ImportPath}}={{.Dir}}' ./...) || exit 1; for p in $$pkgs; do pkg=$${p%%=*}; dir=$${p#*=}; \
		for f in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\).*/\1/p' $$dir/*_test.go 2>/dev/null); do \
			echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$pkg || exit 1; \
		done; done

mutants: ## break each condition in turn: the tests that need no cluster must notice (MUTANTS=authz/rules.go for some)
	$(GO) run ./e2e/mutants -run '$(MUTANTS)'

proto: ## generate proto/ again
	cd proto && $(BUF) lint && $(BUF) generate

bench: ## the figures of the README
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./...
