# Every target installs what it needs; a second run finds it there. `make help` lists them.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help run signin test check eval bench lock build clean preflight preflight-dev unit sanitizers pytest browser \
	frontend-check native timescale known-suite known-bench

PORT ?= 8000
DATA ?= var
DEMO ?= 1
SUITE ?= spine
NAME ?= tracepoint
export PORT DATA DEMO SEED DEMO_FAULT
SUITES = $(shell grep -l __main__ tests/eval/*.py | sed -n 's,^tests/eval/\([a-z]*\)\.py$$,\1,p')
BENCHES = $(shell grep -l '"bench": "' tests/bench/*.py | sed -n 's,^tests/bench/\([a-z_]*\)\.py$$,\1,p')

# The first Python that is new enough; empty when there is none (preflight says so).
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --no-input --require-hashes

# pip, npm and Chromium write below HOME: give them a folder of ours where it is missing or read-only.
HOME_WRITABLE := $(shell test -n "$$HOME" && test -d "$$HOME" && test -w "$$HOME" && echo yes)
ifneq ($(HOME_WRITABLE),yes)
export HOME := $(CURDIR)/.cache/home
$(shell mkdir -p "$(HOME)" 2>/dev/null)
endif

SERVER_STAMP := $(VENV)/.stamp-server
DEV_STAMP := $(VENV)/.stamp-dev
TORCH_VENV := .venv-torch
TORCH_STAMP := $(TORCH_VENV)/.stamp
WITH_TORCH := flight_recorder torch stages
NPM_STAMP := frontend/node_modules/.stamp
DIST_STAMP := frontend/dist/.stamp
ENGINE_STAMP := tests/timescale/node_modules/.stamp
FRONTEND_SOURCES := $(shell find frontend -path frontend/node_modules -prune -o -path frontend/dist -prune -o -type f -print 2>/dev/null)

help:
	@echo "make run [DEMO=0] [PORT=8000] [DATA=var]   start everything; prints a sign-in link"
	@echo "make signin [DATA=var]                     print another sign-in link"
	@echo "make test                                  install what tests need and run all of them"
	@echo "make check                                 the fast part of it"
	@echo "make timescale                             the trace store's tests on TimescaleDB, which make test runs too"
	@echo "make eval SUITE=spine [SEED=n]             an accuracy suite: $(SUITES)"
	@echo "make bench NAME=tracepoint                 a speed benchmark: $(BENCHES)"
	@echo "make lock | build | clean                  pin dependencies | build only | remove what was built"

# ---- run ------------------------------------------------------------------------------------------------------------

run: preflight $(SERVER_STAMP) native $(DIST_STAMP)
	@DIOGENES_DIE_WITH_PARENT=1 exec $(PY) manage.py up --port $(PORT) --data "$(DATA)" --demo $(DEMO)

signin:
	@test -x $(PY) || { echo "Nothing is installed here yet: make run." >&2; exit 1; }
	@DIOGENES_DATA="$(DATA)" $(PY) manage.py signin_link

build: preflight-dev $(SERVER_STAMP) native $(DIST_STAMP)

preflight:
	@test -n "$(PYTHON)" || { echo "Diogenes needs Python 3.11 or newer: install python3 and python3-venv." >&2; exit 1; }
	@$(PYTHON) -m console.supervisor.preflight --port="$(PORT)" --data="$(DATA)" --demo="$(DEMO)" --fault="$(DEMO_FAULT)"

preflight-dev:
	@test -n "$(PYTHON)" || { echo "Diogenes needs Python 3.11 or newer: install python3 and python3-venv." >&2; exit 1; }
	@$(PYTHON) -m console.supervisor.preflight

# A stamp, not the interpreter, says that it is complete: the step may have been interrupted.
$(VENV)/.stamp-venv:
	@echo "Creating the virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(SERVER_STAMP): requirements/server.lock | $(VENV)/.stamp-venv
	@echo "Installing Python packages"
	@$(PIP) -r requirements/server.lock
	@touch $@

$(DEV_STAMP): requirements/dev.lock | $(VENV)/.stamp-venv
	@echo "Installing Python packages for tests"
	@$(PIP) -r requirements/dev.lock
	@touch $@ $(SERVER_STAMP)

# Exactly this version is a build without CUDA where there is none; it comes in too many wheels to be locked by hash. It has an
# environment of its own: nothing of ours may need it. What only reads traces may be missing: the suite then says so.
TORCH_PIP := $(TORCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-input
$(TORCH_STAMP): requirements/torch.txt requirements/traces.txt $(DEV_STAMP)
	@echo "Installing torch, and the frameworks that the stage recorder is tested with"
	@$(PYTHON) -m venv $(TORCH_VENV)
	@$(TORCH_PIP) -r requirements/torch.txt
	@$(TORCH_PIP) --no-deps -r requirements/traces.txt || echo "HolisticTraceAnalysis cannot be installed: E9 does without it"
	@touch $@

native:
	@echo "Building the profiler plugin, the shims, the measurement core, the testbed and the simulator"
	@$(MAKE) --silent --no-print-directory -C nccl_instrument/plugin
	@$(MAKE) --silent --no-print-directory -C nccl_instrument/measure
	@$(MAKE) --silent --no-print-directory -C nccl_instrument/verbs
	@$(MAKE) --silent --no-print-directory -C nccl_instrument/nccl_api
	@$(MAKE) --silent --no-print-directory -C nccl_instrument/testbed
	@$(MAKE) --silent --no-print-directory -C nccl_instrument/simulate

# Not `npm ci`: it refuses a lock that leaves out native packages of platforms nobody builds on. This keeps to the lock too.
$(NPM_STAMP): frontend/package-lock.json
	@echo "Installing front-end packages"
	@cd frontend && npm install --no-save --loglevel=error --no-audit --no-fund --no-update-notifier >/dev/null
	@touch $@

$(DIST_STAMP): $(NPM_STAMP) $(FRONTEND_SOURCES)
	@echo "Building the front end"
	@cd frontend && npm run --silent build -- --logLevel warn
	@touch $@

$(ENGINE_STAMP): tests/timescale/package-lock.json
	@echo "Installing TimescaleDB for tests"
	@cd tests/timescale && npm install --no-save --loglevel=error --no-audit --no-fund --no-update-notifier >/dev/null
	@touch $@

# ---- test -----------------------------------------------------------------------------------------------------------

check: preflight-dev $(DEV_STAMP) $(NPM_STAMP)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(VENV)/bin/lint-imports
	$(PY) -m mypy
	DIOGENES_SECRET_KEY=check $(PY) manage.py makemigrations --check --dry-run
	$(MAKE) native
	$(PY) -m pytest -q -m "not live and not browser and not sanitizer"
	cd frontend && npm run --silent check

test: preflight-dev $(DEV_STAMP) $(NPM_STAMP) browser $(DIST_STAMP)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(VENV)/bin/lint-imports
	$(PY) -m mypy
	DIOGENES_SECRET_KEY=check $(PY) manage.py makemigrations --check --dry-run
	cd frontend && npm run --silent check
	cd frontend && npm test --silent
	$(MAKE) native
	$(PY) -m pytest --durations=15 || { \
		[ $$? = 1 ] || exit 1; \
		echo "Once more what failed: fails again = broken; passes now = unsteady, to be mended too"; \
		$(PY) -m pytest --last-failed --last-failed-no-failures=none -rA --show-capture=no -q; }
	$(MAKE) timescale

# What stores, reads, sums, keeps and survives, on the other store: TimescaleDB in WebAssembly, in PostgreSQL's place.
STORE_TESTS := tests/timescale $(addprefix tests/ingest/test_,receive.py read.py retention.py rollup.py exact_rollups.py old_writers.py outage.py) \
	tests/console/stages/test_store.py
timescale: preflight-dev $(DEV_STAMP) $(ENGINE_STAMP)
	DIOGENES_TEST_STORE=timescale $(PY) -m pytest --durations=5 $(STORE_TESTS)

# Debian's Chromium; where it cannot be installed the browser tests are skipped and counted.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing Chromium for the browser tests"; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } \
			>/dev/null 2>&1 || echo "Chromium could not be installed: browser tests will be skipped"; \
	else echo "No Chromium here and no right to install it: browser tests will be skipped"; fi

known-suite:
	@case " $(SUITES) " in *" $(SUITE) "*) ;; *) echo "SUITE=$(SUITE) is no suite: choose one of $(SUITES)." >&2; exit 1;; esac
	@case "$(SEED)" in *[!0-9]*) echo "SEED=$(SEED) is no whole number." >&2; exit 1;; esac

known-bench:
	@case " $(BENCHES) " in *" $(NAME) "*) ;; *) echo "NAME=$(NAME) is no benchmark: choose one of $(BENCHES)." >&2; exit 1;; esac

eval: known-suite build $(DEV_STAMP) $(if $(filter $(WITH_TORCH),$(SUITE)),$(TORCH_STAMP))
	$(PY) -m tests.eval.$(SUITE) $(if $(SEED),--seed $(SEED))

bench: known-bench build $(DEV_STAMP) $(if $(filter $(WITH_TORCH),$(NAME)),$(TORCH_STAMP))
	$(PY) -m tests.bench.$(NAME)

# ---- upkeep ---------------------------------------------------------------------------------------------------------

UV := uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-header --no-annotate
lock:
	@command -v uv >/dev/null || { echo "make lock needs uv on the path (pip install uv)." >&2; exit 1; }
	$(UV) --extra server -o requirements/server.lock
	$(UV) --extra server --extra dev -c requirements/server.lock -o requirements/dev.lock

clean:
	rm -rf $(VENV) $(TORCH_VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache frontend/node_modules frontend/dist \
		tests/timescale/node_modules
	-@$(MAKE) --silent --no-print-directory -C nccl_instrument/plugin clean
	-@$(MAKE) --silent --no-print-directory -C nccl_instrument/measure clean
	-@$(MAKE) --silent --no-print-directory -C nccl_instrument/verbs clean
	-@$(MAKE) --silent --no-print-directory -C nccl_instrument/nccl_api clean
	-@$(MAKE) --silent --no-print-directory -C nccl_instrument/testbed clean
	-@$(MAKE) --silent --no-print-directory -C nccl_instrument/simulate clean
	@echo "The data folder ($(DATA)) is kept: remove it yourself to start from nothing."
