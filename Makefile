# make            format, then everything `make test` does
# make test       lint, types, tests; what CI runs. ARGS="-k lease" narrows the tests
# make proof      what a release runs: all tests on everything, long random search. SEED=7 runs one again
# make check      lint and types only, changing nothing
# make format     rewrite the sources in the project's format
# make demo       see the product at work in a terminal, installation included. ARGS="--seconds 20"
# make pythons    the tests that meet the interpreter, on the other Pythons found here (3.11 to 3.13)
# make house      the rooms of the package and what each imports; the files one job's life runs through
# make docs       the documentation as a site, offline, into site/; its reference is written from the code
# make bench      Towline beside its peers and the bare database, the short set: under ten minutes once
#                 the peers are installed, which it does itself. ARGS="--engine sqlite --scenario drain"
# make bench-full every scenario, five rounds: hours. docs/explanation/performance.md is made from its records
# make clean      remove caches and build output

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# The demo needs none of the tools of development: on a fresh clone it has an environment of its own.
DEMO   := $(if $(wildcard $(STAMP)),$(VENV),.venv-demo)
ARGS   ?=

# Folders that hold Python today: mypy takes a missing or empty one for a mistake.
SOURCES := $(strip $(foreach folder,towline tests bench examples,\
	$(if $(shell find $(folder) -name '*.py' 2>/dev/null | head -n 1),$(folder))))

# Four for each core, since many tests wait: for a lease, a timeout, another process.
WORKERS ?= $(shell $(BIN)/python -c 'import os; print(min(8, 4 * (os.cpu_count() or 1)))')

# mypy looks at everything. pyright is what users have: in a proof it looks at everything, too.
PYRIGHT := towline examples

# pyright comes whole in its wheel; without these it would look for a newer release first.
export PYRIGHT_PYTHON_USE_BUNDLED_PYRIGHT := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# Tests start hundreds of processes; each would compile us anew if it could not keep what it compiled.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: all test proof pythons check format demo docs house bench bench-full clean
# The steps share caches, and the order is the meaning: format before check before test.
.NOTPARALLEL:

all: format test

test: check
	@$(BIN)/python -m tests.prepare
	$(BIN)/python -m pytest -n $(WORKERS) --maxschedchunk=2 -q -ra $(ARGS)
	@echo "format, lint, types and tests: all passed"

proof: PYRIGHT := $(SOURCES)
proof: check
	@$(BIN)/python -m tests.prepare
	@$(BIN)/python -m tests.prove $(if $(SEED),--seed $(SEED)) $(ARGS)

pythons: $(STAMP)
	@$(BIN)/python -m tests.pythons $(ARGS)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@echo "$(BIN)/mypy $(SOURCES), $(BIN)/pyright $(PYRIGHT)"
	@$(BIN)/mypy $(SOURCES) & mypy=$$!; $(BIN)/pyright $(PYRIGHT); pyright=$$?; wait $$mypy && exit $$pyright

format: $(STAMP)
	$(BIN)/ruff check --select I --fix-only .
	$(BIN)/ruff format .

demo: $(DEMO)/.installed
	@$(DEMO)/bin/python -m examples.demo $(ARGS)

docs: $(STAMP)
	@$(BIN)/python -m tests.docs.site

house: $(STAMP)
	@$(BIN)/python -m tests.shape.rooms
	@$(BIN)/python -m tests.shape.walks

bench: $(STAMP)
	@$(BIN)/python -m bench $(ARGS)

bench-full: $(STAMP)
	@$(BIN)/python -m bench --full $(ARGS)

# An environment with the package in it, and the extras that its target asks for.
%/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Towline needs Python 3.11 or newer; try make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@test -x $*/bin/python || $(PYTHON) -m venv $*
	$*/bin/python -m pip install --quiet --disable-pip-version-check -e '.$(EXTRAS)'
	@touch $@

$(STAMP): EXTRAS := [dev]

# The environment itself stays; without its stamp the next run brings it up to date.
clean:
	rm -rf bench/.data .venv-* build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	rm -f $(STAMP)
