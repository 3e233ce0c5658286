# `make demo` and `make test` set everything up themselves: Python 3.11 and nothing else is needed.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
# Three processes keep two cores busy where one waits for Ray. Should a test end its process, the others must not wait for what it was to run.
PARALLEL := -n 3 --dist loadfile --max-worker-restart 0
export OMP_NUM_THREADS := 1
export RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO := 0

.PHONY: demo test test-long lint study-fedmlac study-fedstar study-fednst study-digits bench-engine chaos faults cluster-check dashboards clean

$(BIN)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[synth,dev]"
	touch $@

demo: $(BIN)/.installed  ## FedNST on the embedded corpus: a seed model, 60 clients, 25 rounds, a table
	$(BIN)/fedray run configs/fednst/embedded.yaml

test: $(BIN)/.installed  ## all tests but the longest (about 12 minutes on two cores)
	$(BIN)/python -m pytest $(PARALLEL)

test-long: $(BIN)/.installed  ## the longest tests, one after the other: some watch all processes of the machine, or the clock (about 25 minutes)
	$(BIN)/python -m pytest -m long

lint: $(BIN)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

study-fednst: $(BIN)/.installed  ## three seeds of FedNST, SFL and server-only (about 25 minutes on two cores)
	$(BIN)/python benchmarks/fednst_embedded.py

study-digits: $(BIN)/.installed  ## real speech: connected digits, six splits of the speakers
	$(BIN)/python benchmarks/fednst_digits.py

study-fedstar: $(BIN)/.installed  ## three trials of FedSTAR and the supervised federation on keywords, 5 to 30 clients (about an hour on two cores)
	$(BIN)/python benchmarks/fedstar_keywords.py

study-fedmlac: $(BIN)/.installed  ## three seeds of FedMLAC and its baselines on keywords: noise, wrong labels, ablations (about an hour on two cores)
	$(BIN)/python benchmarks/fedmlac_keywords.py

bench-engine: $(BIN)/.installed  ## the engine against bare torch, and how flat it stays (about 16 minutes on two cores, with nothing else running)
	$(BIN)/python benchmarks/engine.py

chaos: $(BIN)/.installed  ## ten minutes of killing actors, drivers, whole runs and nodes: every run must end with the same bits
	$(BIN)/python -m tests.chaos

faults: $(BIN)/.installed  ## every fault on real runs, and docs/faults.md with what the user reads (about 6 minutes on two cores, as root)
	$(BIN)/python -m tests.faults

cluster-check: $(BIN)/.installed  ## three hosts in network namespaces, `ray up`, a sweep, a link cut (as root, with openssh-server, iproute2 and rsync)
	$(BIN)/python -m tests.cluster.check

dashboards:  ## Prometheus and Grafana, where they are installed, until Ctrl-C (docs/dashboards.md)
	$(PYTHON) dashboards/start.py

clean:
	rm -rf $(VENV) build *.egg-info
