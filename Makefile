# make learn   open the course          make build      rebuild the notebooks from solutions/
# make test    ruff and the tests       make test-all   the slow tests as well
# make clean   remove caches; .venv and my_work stay

.DEFAULT_GOAL := learn
.PHONY: learn test test-all build lint clean

# The first Python that is new enough; another one: make learn PYTHON=/path/to/python3
NEW_ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11 python,\
	$(shell $(p) -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && echo $(p))))
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint requirements.lock
PINS := pyproject.toml requirements.lock

learn: .venv/learn.stamp
	@$(BIN)/workbook learn

# Tests start hundreds of processes: they compile the course once, even where the machine is told to keep no bytecode.
test test-all: export PYTHONDONTWRITEBYTECODE :=

test: lint
	@echo "Testing: everything but the slow tests (minutes)"
	@$(BIN)/python -m pytest -m "not slow" --numprocesses auto --dist loadfile --no-loadscope-reorder

test-all: lint
	@echo "Testing: everything"
	@$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

lint: .venv/dev.stamp
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

build: .venv/dev.stamp
	@$(BIN)/python -m autograde build

clean:
	@rm -rf build *.egg-info .pytest_cache .ruff_cache .hypothesis
	@find . -path ./.venv -prune -o \( -name __pycache__ -o -name .ipynb_checkpoints \) -type d -print0 | xargs -0 rm -rf
	@echo "Caches removed; .venv and my_work stay."

# A stamp is newer than the pins it was made from, so the set-up runs again only when they change.
.venv/learn.stamp: $(PINS) | $(BIN)/python
	@echo "Installing the pinned packages (the first time: some minutes and 1.5 GB or more)"
	@$(PIP) --editable .
	@touch $@

.venv/dev.stamp: $(PINS) | $(BIN)/python
	@echo "Installing the pinned packages and the tools of authors (the first time: some minutes and 1.5 GB or more)"
	@$(PIP) --editable ".[dev,grading,cluster,postgres,corpora,anki]"
	@touch .venv/learn.stamp $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer with venv was found. Install one, for example:" \
		"sudo apt install python3 python3-venv, or brew install python@3.12. Then run make again."; exit 1; }
	@echo "Making .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv
