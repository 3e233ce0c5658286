# Each target installs what it needs; only Python 3.11 or newer is needed. The demo and the studies do without the
# packages of tests.
PYTHON ?= $(firstword $(shell for minor in 11 12 13; do command -v python3.$$minor; done) python3)
VENV ?= .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
# The versions that the tests passed with. `make test CONSTRAINTS=` takes the newest that the index has.
CONSTRAINTS := --constraint constraints.txt
PIP := pip install --quiet --disable-pip-version-check
# uv installs in a fraction of pip's time, but reads none of pip's settings: where it fails, pip installs.
INSTALL = $(1)/bin/$(PIP) uv && $(1)/bin/uv pip install --quiet --python $(1) $(2) || $(1)/bin/$(PIP) $(2)
# Tests wait for Ray some of the time, so there is a process more than two cores need. When a test ends its process, the
# others do not wait for it.
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# The core: what other packages can break, in two to three minutes on two cores.
TESTS := $(addprefix tests/, algorithms config data/features data/text doctor/test_checks.py models runs storage training \
	engine/test_attach.py engine/test_engine.py engine/test_local_ray.py engine/test_ray_auth.py engine/test_session.py \
	engine/test_tracking.py report/test_page.py report/test_report.py sweep/test_loggers.py sweep/test_sweeps.py \
	sweep/test_tuning.py test_package.py)
export OMP_NUM_THREADS := 1
export RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO := 0
# Python keeps compiled files, where a shell tells it not to: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-long test-nightly test-oldest test-newest constraints lint docs docs-serve study-fedmlac study-fedstar study-fednst study-digits bench-engine bench-peers chaos soak fuzz faults cluster-check slurm-check dashboards clean

$(BIN)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(call INSTALL,$(VENV),$(CONSTRAINTS) --editable ".[synth]")
	touch $@

$(BIN)/.installed: $(BIN)/.demo
	$(call INSTALL,$(VENV),$(CONSTRAINTS) --editable ".[dev]")
	touch $@

demo: $(BIN)/.demo  ## FedNST on the embedded corpus: a seed model, 60 clients, 25 rounds, a table
	$(BIN)/fedray run configs/fednst/embedded.yaml

test: $(BIN)/.installed  ## all tests but the longest (6 to 11 minutes on two cores)
	$(BIN)/python -m pytest $(PARALLEL)

test-long: $(BIN)/.installed  ## the longer tests (about 20 minutes on two cores)
	$(BIN)/python -m pytest $(PARALLEL) -m "long and not nightly"

test-nightly: $(BIN)/.installed  ## long tests that are seldom the first to fail (about half an hour)
	$(BIN)/python -m pytest $(PARALLEL) -m nightly

# The versions that pyproject.toml allows: each package at its floor, and the newest of the index. uv can resolve to
# floors, which pip cannot.
.venv-%/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/$(PIP) uv
	.venv-$*/bin/uv pip install --quiet --compile-bytecode --python .venv-$* $(RESOLUTION) --upgrade --editable ".[synth,dev]"
	touch $@

.venv-oldest/.installed: RESOLUTION := --resolution lowest-direct

test-oldest: .venv-oldest/.installed  ## the core with the oldest packages that pyproject.toml allows; TESTS=tests: all tests
	.venv-oldest/bin/python -m pytest $(PARALLEL) $(TESTS)

test-newest: .venv-newest/.installed  ## the core with the newest packages that the index has; TESTS=tests: all tests
	.venv-newest/bin/python -m pytest $(PARALLEL) $(TESTS)

constraints: .venv-newest/.installed  ## constraints.txt anew, from those newest packages, once their tests pass
	(sed '/^[^#]/d' constraints.txt; .venv-newest/bin/uv pip freeze --quiet --python .venv-newest --exclude-editable | grep -v -E '^(pip|setuptools|uv)==') > constraints.new
	mv constraints.new constraints.txt

lint: $(BIN)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(BIN)/.installed  ## the documentation as a site: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(BIN)/.installed  ## the same on http://127.0.0.1:8000, built again when a page changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

study-fednst: $(BIN)/.demo  ## three seeds of FedNST, SFL and server-only (about 25 minutes on two cores)
	$(BIN)/python -m benchmarks.studies.fednst_embedded

study-digits: $(BIN)/.demo  ## real speech (FEDRAY_SPEECH): connected digits, six splits of the speakers
	$(BIN)/python -m benchmarks.studies.fednst_digits

study-fedstar: $(BIN)/.demo  ## FedSTAR and the supervised federation on keywords, three trials (about an hour)
	$(BIN)/python -m benchmarks.studies.fedstar_keywords

study-fedmlac: $(BIN)/.demo  ## FedMLAC and its baselines on keywords, three seeds (about an hour on two cores)
	$(BIN)/python -m benchmarks.studies.fedmlac_keywords

bench-engine: $(BIN)/.installed  ## the engine against bare torch, and its scaling (about 25 minutes on two idle cores)
	$(BIN)/python -m benchmarks.engine.engine

$(PEERS)/.installed: benchmarks/engine/peers.txt constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(call INSTALL,$(PEERS),--requirement $< $(shell grep '^torch==' constraints.txt))
	touch $@

bench-peers: $(BIN)/.installed $(PEERS)/.installed  ## fedray beside pfl-research and Flower (ARGS="--turns 1"), in their own environment
	$(BIN)/python -m benchmarks.engine.peers $(ARGS)

chaos: $(BIN)/.installed  ## ten minutes of faults (kills, hangs, memory, disk, clock, network): all runs must have the same bits
	$(BIN)/python -m tests.chaos

soak: $(BIN)/.installed  ## two hours of the same, which goes on where it was stopped; writes benchmarks/results/soak.md
	$(BIN)/python -m tests.chaos --minutes 120 --keep runs/soak --page

fuzz: $(BIN)/.installed  ## ten minutes of damaged files for every reader
	$(BIN)/python -m tests.fuzz

faults: $(BIN)/.installed  ## every fault on real runs; writes docs/operations/faults.md (about 13 minutes, as root)
	$(BIN)/python -m tests.faults

cluster-check: $(BIN)/.installed  ## three hosts in namespaces, a sweep, a cut link (root, openssh-server, iproute2, rsync)
	$(BIN)/python -m tests.cluster.check

slurm-check: $(BIN)/.installed  ## the scripts under Slurm itself (root, slurmctld, slurmd, slurm-client, munge; four minutes)
	$(BIN)/python -m tests.cluster.slurm_check

dashboards:  ## Prometheus and Grafana, if installed, until Ctrl-C (docs/operations/dashboards.md)
	$(PYTHON) dashboards/start.py

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest $(PEERS) build dist *.egg-info
