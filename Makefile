# make run: set up and run the main job.   make test: set up and check everything.
# ARGS passes overrides on: make run ARGS="model=11l quant=int6_mixed"
VENV ?= .venv
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := $(VENV)/bin
# Tests of one file stay on one worker as far as possible, which shares what they compose and build.
PARALLEL = $(BIN)/python -m pytest -q --maxprocesses 4 --dist worksteal
# Slow tests often wait for processes, so one more of them runs than there are cores.
CORES_AND_ONE := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# The test files that have a marker.
MARKED = $(shell grep -rl --include='test_*.py' 'mark\.$(1)\b' tests ideas)
# Files whose code meets other packages: configuration, checkpoints, artifacts, tables, pages, data.
LOWEST = tests/settings/test_composition.py tests/training/loop tests/artifact/test_container.py tests/artifact/codec \
	tests/lab/report/test_results.py tests/lab/report/test_board.py tests/lab/track tests/training/data tests/test_train.py
# Python compiles what is imported. Pip would compile all that is installed, which takes half a minute.
INSTALL = $(PYTHON) -m pip --python $(BIN)/python install -q --no-compile

# Tests start hundreds of processes. Without byte code each of them would compile golf's modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run docs test test-slow test-exhaustive test-lowest test-slurm test-gpu lint format clean
run: $(VENV)/.installed
	$(BIN)/python golf/train.py $(ARGS)

# A searchable site of all pages, in build/site.
docs: $(VENV)/.installed
	$(INSTALL) -e ".[docs]"
	$(BIN)/python scripts/dev/build_docs.py build/site

# mypy uses one core for a minute without its cache, so it runs beside the tests. What it says comes after them.
test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@said=$$(mktemp); $(BIN)/mypy >"$$said" 2>&1 & types=$$!; trap 'kill $$types 2>/dev/null' INT TERM; \
	$(PARALLEL) -n auto -m "not slow and not slurm and not gpu" $(ARGS); status=$$?; \
	wait $$types || status=1; echo "mypy: $$(cat "$$said")"; rm "$$said"; exit $$status

# Every worker imports all files that it is given, which takes ten seconds for those of the whole suite.
test-slow: $(VENV)/.installed-dev
	$(PARALLEL) -n $(CORES_AND_ONE) -m "slow and not slurm and not gpu and not exhaustive" $(ARGS) $(call MARKED,slow)

# Further cases of slow tests, such as the other dtype at every moment of a kill. They take about an hour.
test-exhaustive: $(VENV)/.installed-dev
	$(PARALLEL) -n $(CORES_AND_ONE) -m exhaustive $(ARGS) $(call MARKED,exhaustive)

# A new installation has the newest versions that pyproject.toml allows; these tests have the lowest. What has no lower
# version there, torch among them, is found behind them.
test-lowest: $(VENV)-lowest/.installed
	$(VENV)-lowest/bin/python -m pytest -q --maxprocesses 4 --dist worksteal -n auto \
		-m "not slow and not slurm and not gpu" $(ARGS) $(LOWEST)

test-slurm: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -m slurm $(ARGS) $(call MARKED,slurm)

# A machine with a GPU may have no network. This installs nothing, and without an environment it takes PYTHON.
test-gpu:
	$(or $(wildcard $(BIN)/python),$(PYTHON)) -m pytest -q -m gpu $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Where python has no ensurepip (Debian without python3-venv), the system's pip installs into the environment.
$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found; name one with PYTHON=…" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) does not run or is older than Python 3.11; name another with PYTHON=…" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV) || $(PYTHON) -m venv --clear --without-pip $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) -e .
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) -e ".[dev]"
	touch $(VENV)/.installed $@

$(VENV)-lowest/.installed: pyproject.toml $(VENV)/.installed-dev
	$(PYTHON) -m venv --clear --without-pip $(VENV)-lowest
	packages=$$($(VENV)-lowest/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))"); \
	{ pwd; $(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))"; } >"$$packages/newest.pth"
	$(BIN)/python scripts/dev/lowest_versions.py >$(VENV)-lowest/versions.txt
	$(PYTHON) -m pip --python $(VENV)-lowest/bin/python install -q --no-compile -r $(VENV)-lowest/versions.txt
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-lowest .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
