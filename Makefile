# Needs make, a POSIX shell and Python 3.11 or later; everything else goes into .venv.

PYTHON ?= python3
VENV ?= .venv
# What `make run` listens on and keeps its data in (empty: the default of climate-standalone).
PORT ?= 1234
DATABASE ?=
# How many processes run tests at once; the tests of a file stay together (0: pytest's own).
JOBS ?= 2
# What the testbed keeps, what is added to its ports, where its catalog says that leases are to be
# had, and whether it has Blazar too (empty: no); see CONTRIBUTING.md.
export OPENSTACK_DIR ?= .openstack
export OPENSTACK_PORT_OFFSET ?= 0
export OPENSTACK_RESERVATION_URL ?= http://127.0.0.1:1234/v1
export OPENSTACK_BLAZAR ?=
# More arguments for pytest (test, test-sqlite, test-faults and so on) or the benchmarks (bench).
ARGS ?=

BIN := $(VENV)/bin
TESTBED = $(PYTHON) -m tests.openstack.testbed
PARALLEL := --numprocesses $(JOBS) --dist loadfile
# An installation is repeated only when one of these has changed since.
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
INPUTS := setup.cfg pyproject.toml constraints.txt
EXTRAS := postgresql,mariadb,test
EXTRAS_DEV := $(EXTRAS),dev

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install install-dev run test test-slow test-sqlite test-faults test-faults-short coverage lint format type check config \
	openstack-up openstack-down openstack-wipe test-openstack bench constraints clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) \
		| awk -F'|' '{printf "%-18s%s\n", $$1, $$2}'

install: $(INSTALLED) ## Install climate and all it needs into .venv

install-dev: $(INSTALLED_DEV) ## Install the linters and the type checker too

run: $(INSTALLED) ## Run the service on this machine (PORT=1234 DATABASE=sqlite:///FILE)
	@exec $(BIN)/climate-standalone --port $(PORT) $(if $(DATABASE),--database '$(DATABASE)')

test: $(INSTALLED) ## Run the tests on every database that is reachable (ARGS='-k lease')
	$(BIN)/pytest $(PARALLEL) $(ARGS)

test-slow: $(INSTALLED) ## Run the tests that take minutes
	$(BIN)/pytest -m 'slow and not openstack and not faults' $(ARGS)

test-sqlite: $(INSTALLED) ## Run the tests on SQLite only
	CLIMATE_TEST_DATABASES=sqlite $(BIN)/pytest $(PARALLEL) $(ARGS)

test-faults: $(INSTALLED) ## Run managers, databases and brokers into each fault at each moment
	$(BIN)/pytest --numprocesses $(JOBS) --dist worksteal -m faults tests/faults $(ARGS)

test-faults-short: $(INSTALLED) ## Each fault at one moment, with few leases (5 minutes)
	CLIMATE_TEST_FAULT_LEASES=12 CLIMATE_TEST_FAULT_RESULTS=.faults/short \
		$(BIN)/pytest --numprocesses $(JOBS) --dist worksteal -m 'faults and not slow' tests/faults $(ARGS)

openstack-up: ## Start a real OpenStack on this machine (3 minutes, later less than one)
	@$(TESTBED) up

openstack-down: ## Stop it; what it knows is kept
	@$(TESTBED) down

openstack-wipe: ## Stop it and remove all that it knows; its packages are kept
	@$(TESTBED) wipe

test-openstack: $(INSTALLED) ## Run the tests on that OpenStack, or on the one that OS_* variables name
	@set -e; \
		if test -z "$$OS_AUTH_URL$$OS_CLOUD" && test -f $(OPENSTACK_DIR)/openrc; then \
			. $(abspath $(OPENSTACK_DIR))/openrc; \
		fi; \
		set -x; $(BIN)/pytest -m 'openstack and not slow' tests/openstack $(ARGS)

coverage: $(INSTALLED_DEV) ## Run the tests and show the lines that none of them reached
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

lint: $(INSTALLED_DEV) ## Check style and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(INSTALLED_DEV) ## Lay the code out and mend what can be mended by machine
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

type: $(INSTALLED_DEV) ## Check types
	$(BIN)/mypy

check: lint type test ## Run lint, type and test

config: $(INSTALLED) ## Write etc/climate/climate.conf.sample from the options in the code
	PYTHONWARNINGS=ignore $(BIN)/oslo-config-generator \
		--config-file etc/climate/config-generator.conf

bench: $(INSTALLED) ## Run the benchmarks (ARGS="admission --clients 1,4": one, with its options)
	$(BIN)/python -m benchmarks $(ARGS)

constraints: ## Write constraints.txt anew from the ranges in setup.cfg (Python 3.11)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { \
		echo "constraints.txt is made with Python 3.11: make constraints PYTHON=python3.11" >&2; \
		exit 1; }
	@set -e; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
		$(PYTHON) -m venv "$$scratch/venv"; \
		"$$scratch/venv/bin/python" -m pip install --disable-pip-version-check \
			--editable '.[$(EXTRAS_DEV)]' >"$$scratch/log" 2>&1 \
			|| { cat "$$scratch/log" >&2; exit 1; }; \
		{ sed -n '/^#/p' constraints.txt; \
			"$$scratch/venv/bin/python" -m pip freeze --exclude-editable; } >"$$scratch/new"; \
		cp "$$scratch/new" constraints.txt
	@echo "constraints.txt is new; run make check before you commit it"

clean: ## Remove all that make has made, but no database and no OpenStack
	rm -rf $(VENV) build dist *.egg-info .coverage .coverage.* htmlcov \
		.hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): $(INPUTS) | $(BIN)/python
	@echo "Installing climate into $(VENV), which takes a minute at most; later runs skip this"
	$(call pip_install,$(EXTRAS))
	@touch $@

$(INSTALLED_DEV): $(INSTALLED)
	@echo "Installing the linters and the type checker into $(VENV)"
	$(call pip_install,$(EXTRAS_DEV))
	@touch $@

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
		echo "climate needs Python 3.11 or later; there is no $(PYTHON) here." \
			"Name one: make install PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "climate needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
			"Name a later one: make install PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# pip keeps quiet unless it fails; then all it had to say is shown.
define pip_install
@$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt \
	--editable '.[$(1)]' >$(VENV)/install.log 2>&1 || { cat $(VENV)/install.log >&2; exit 1; }
endef
