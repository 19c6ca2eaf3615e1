# `make demo` plans and runs a small ResNet-50; `make test` runs every check. Both make `.venv` when it is not there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST_ARGS ?= -n auto

.PHONY: demo test lint types unit clean

demo: $(INSTALLED)
	$(BIN)/python benchmarks/demo.py

test: lint types unit

lint: $(INSTALLED)
	$(BIN)/ruff check .

types: $(INSTALLED)
	$(BIN)/mypy

unit: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "not cuda" $(PYTEST_ARGS)

# pip is the last thing that venv installs: without it the folder is half made.
$(INSTALLED): pyproject.toml
	test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) demo build dist snplan.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
