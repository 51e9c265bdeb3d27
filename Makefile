# `make demo` and `make test` do all the set-up on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check format clean

# torch is asked for by its exact release first: a local index may hold a CPU build of it, and a later
# range then installs nothing more. --no-compile halves the time of the install.
$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -e .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'
	touch $@

demo: $(VENV)/.core
	$(BIN)/gimbal train demo

test: $(VENV)/.dev
	$(BIN)/pytest

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/pytest -m "not slow"

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
