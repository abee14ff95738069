# From a fresh clone: `make demo` installs and runs the main job on embedded data, `make test` checks everything.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_FLAGS ?= --numprocesses 2

.PHONY: install demo test lint types pytest coverage clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	# Most modules of the large packages are never imported: Python compiles the others when it first needs them.
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[dev]"
	touch $(STAMP)

demo: install
	$(BIN)/casper demo --out demo-output --force

lint: install
	$(BIN)/ruff check src tests benchmarks docs tools
	$(BIN)/ruff format --check src tests benchmarks docs tools

types: install
	$(BIN)/basedpyright

pytest: install
	# One compute thread for each test process: a 2-core machine is neither idle nor fought over.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_FLAGS)

test: lint types pytest

# Watching which lines are run makes the tests half as slow again, so it is not part of `make test`.
coverage: PYTEST_FLAGS += --cov --cov-report=term
coverage: pytest

clean:
	rm -rf $(VENV) demo-output .pytest_cache .ruff_cache .coverage build dist
