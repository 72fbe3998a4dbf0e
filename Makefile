# Everything runs in .venv, which these targets make by themselves.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint format docs bench soak clean chromium slurm-wlm openssh-server slurmdbd mariadb-server

demo: .venv/.demo  ## a small, real study, in .demo; one from before is removed
	@$(BIN)/stoker demo --again .demo

test: $(READY) chromium slurm-wlm openssh-server slurmdbd mariadb-server  ## all tests
	$(BIN)/pytest -n auto -m "not timing"
	$(BIN)/pytest -m timing

lint: $(READY)  ## style, types, layers, generated pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/make_docs.py --check

# What tests use for real. Where it cannot be installed, they skip, and say so.
slurmdbd mariadb-server: SPARINGLY := --no-install-recommends
chromium slurm-wlm openssh-server slurmdbd mariadb-server:
	@dpkg -s $@ >/dev/null 2>&1 || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
		{ echo "installing $@ …"; export DEBIAN_FRONTEND=noninteractive; \
		apt-get -qq update && apt-get -qq install -y $(SPARINGLY) $@ >/dev/null; }

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## write the generated parts of docs/
	$(BIN)/python scripts/make_docs.py

bench: $(READY)  ## the figures of docs/benchmarks.md; installs the peers into .venv-peers
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/planning.py
	$(BIN)/python benchmarks/spawn.py
	$(BIN)/python benchmarks/trials.py /dev/shm
	$(BIN)/python benchmarks/trials.py .
	$(BIN)/python benchmarks/turnaround.py
	$(BIN)/python benchmarks/large.py
	$(BIN)/python benchmarks/progress.py --install
	$(BIN)/python benchmarks/checkpoints.py
	$(BIN)/python benchmarks/warm.py
	$(BIN)/python benchmarks/tables.py --install
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/peers.py --install
	$(BIN)/python benchmarks/slurm.py --install

soak: $(READY)  ## the property tests, the simulation and the kills, many more of each
	STOKER_TEST_EXAMPLES=5000 $(BIN)/pytest -n auto -m "not timing" tests/plan tests/spec
	STOKER_TEST_SEEDS=10000 $(BIN)/pytest -n auto tests/simulation
	STOKER_TEST_KILLS=200 $(BIN)/pytest tests/local -k plugs
	STOKER_TEST_VMS=200 $(BIN)/pytest tests/emulator -k fleet

clean:
	rm -rf .venv .demo .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(READY): .venv/.made pyproject.toml
	@echo "installing into .venv …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo,dev]'
	@touch $@

.venv/.demo: .venv/.made pyproject.toml  # whoever only looks need not wait for the tools of development
	@echo "installing into .venv …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Stoker needs Python 3.10 or newer: make PYTHON=python3.12 …" >&2; exit 2; }
	@$(PYTHON) -m venv .venv || { echo "The venv module is missing; on Debian: apt-get install python3-venv" >&2; exit 2; }
	@touch $@
