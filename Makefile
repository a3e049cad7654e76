GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty --match 'v*' 2>/dev/null || echo dev)
# Without the man page generator of the flag library, gRPC's /debug/requests pages, and HTTP/2 for
# net/http, which nothing here speaks: gRPC has its own.
TAGS := $(shell cat hack/tags)
LDFLAGS := -s -w -X main.version=$(VERSION)

.PHONY: help build plugin kubeapi demo test race unit lint verify fuzz vuln soak differential vm vm-smoke vm-test bench load generate docs golden picture install dist reproducible debian release engine-up engine-down clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/crishim: static, without paths of this machine in it
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/crishim .

plugin: ## bin/kubectl-crishim, which is kubectl crishim where bin is in PATH
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/kubectl-crishim ./cmd/kubectl-crishim

kubeapi: ## bin/kubeapi: a small API server, on a container runtime of this machine, to try the plugin with
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/kubeapi ./hack/kubeapi

install: build ## install below $(DESTDIR)$(PREFIX) (/usr/local) what the packages install: program, manual, completions, units
	PREFIX='$(or $(PREFIX),/usr/local)' DESTDIR='$(DESTDIR)' hack/install.sh bin/crishim

dist: ## all of a release in dist/: programs, archives, packages, images, bills of materials, licences, checksums
	VERSION='$(VERSION)' hack/dist.sh

reproducible: dist ## make dist, and again from a copy elsewhere, and compare every byte
	VERSION='$(VERSION)' hack/reproducible.sh

debian: dist ## install, use, break, upgrade and remove the packages on a Debian 12 of their own, booted by systemd
	hack/debian.sh

release: ## check changelog, tag and tree, verify, test, tag, and make dist
	hack/release.sh

demo: build ## the main job as a user would do it, on a Docker engine that it finds or installs
	hack/with-engine.sh hack/demo.sh

test: build ## unit, in-process and real-engine tests (Docker and containerd)
	hack/test.sh

race: build ## the tests of the packages under the race detector, on the same engines
	hack/test.sh race

unit: ## tests that need nothing but Go
	env -u CRISHIM_TEST_CONTAINERD -u CRISHIM_REQUIRE_ENGINE DOCKER_HOST=unix:///nonexistent CRISHIM_NO_ENGINE=1 $(GO) test -tags $(TAGS) -timeout 10m ./...

lint: ## gofmt, vet, shellcheck (where it is installed), golangci-lint and deadcode at their pinned versions
	hack/lint.sh

verify: build ## what to run before sending a change: lint, import rules, module state, generated code; installs what that needs (Debian, root)
	hack/verify.sh

fuzz: ## every fuzz target for FUZZTIME (one minute)
	hack/fuzz.sh $(or $(FUZZTIME),60s)

differential: ## compare some two hundred command lines with crictl's: CRICTL=/path/of/crictl make differential
	@[ -n "$(CRICTL)" ] || echo 'CRICTL names no crictl binary: crishim is compared with itself, as crictl and with --compat=crictl'
	CRICTL="$(CRICTL)" $(GO) test -tags $(TAGS) -count=1 -run '^TestDifferential$$' ./internal/e2e/verbs

vuln: ## known vulnerabilities in what is linked, where the database can be reached
	hack/vuln.sh

vm: ## make the machine of hack/vm.sh: a Debian with systemd, cgroup v2, Docker and containerd in QEMU
	hack/vm.sh build

vm-smoke: build ## in that machine: limits, an update, statistics, an OOM kill and the end of a pod, on Docker and containerd
	CRISHIM_VM_TIMEOUT=1800 hack/vm.sh run hack/vmtest/smoke.sh

vm-test: build ## in that machine, with Debian 12 and with 13 or where CRISHIM_VM says: vm-smoke, the units, and the tests of hack/vmtest/tests
	@for vm in $(or $(CRISHIM_VM),bookworm trixie); do CRISHIM_VM=$$vm hack/vmtest/run.sh || exit; done

soak: ## parallel clients against serve for SOAK (5m) with outages of the engine; SOAK_RESTART is a command that restarts it
	SOAK=$(or $(SOAK),5m) hack/with-engine.sh $(GO) test -tags $(TAGS) -count=1 -timeout 0 -v -run TestSoakOnEngine ./internal/reliability

bench: build ## measure crishim and docker on a private engine; prints the table of docs/performance.md, writes bench.json (BENCHFLAGS=-quick)
	CRISHIM_ENGINE_DIR=$(or $(CRISHIM_ENGINE_DIR),/var/lib/crishim-bench) CRISHIM_PRIVATE_ENGINE=1 GO='$(GO)' hack/with-engine.sh hack/bench.sh $(BENCHFLAGS)

load: build ## the tests of streaming with all of their load: 200 sessions, 1 GiB each way, 5,000 connections
	CRISHIM_TEST_LONG=1 hack/with-engine.sh $(GO) test -tags $(TAGS) -count=1 -timeout 30m -run 'AtOnce|InARow|BothWays|TestScripts/.*/load' ./internal/e2e ./client/stream ./shim/stream

generate: ## write generated code again: api, the pause programs
	hack/generate.sh

docs: ## write docs/commands again, the pages of the verbs
	$(GO) run -tags $(TAGS) ./hack/docs

golden: ## rewrite expected output; read the diff as carefully as code
	CRISHIM_UPDATE_GOLDEN=1 $(GO) test -tags $(TAGS) -count=1 ./output/... ./internal/e2e/verbs

picture: ## draw docs/picture.svg, docs/top.svg and docs/why.svg again, from sessions on a private engine
	CRISHIM_UPDATE_GOLDEN=1 hack/with-engine.sh $(GO) test -tags $(TAGS) -count=1 -run '^TestPicture(OfTop|OfWhy)?OnEngine$$' ./internal/e2e

engine-up: ## start the test engines and leave them running: hack/engine.sh env prints how to reach them
	hack/engine.sh up

engine-down: ## end them and leave nothing
	hack/engine.sh down

clean: ## remove what build made
	rm -rf bin dist
