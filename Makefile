# Needs make, a POSIX shell and Python 3.11 or later; everything else goes into .venv.

PYTHON ?= python3
VENV ?= .venv
# What `make run` listens on, keeps its data in, and is configured by (empty: the default of
# climate-standalone). The port and the database of CONFIG apply if PORT and DATABASE are not given.
PORT ?= $(if $(CONFIG),,1234)
DATABASE ?=
CONFIG ?=
# Number of processes that run tests (0: pytest's own process).
JOBS ?= 2
# What the testbed keeps, what is added to its ports, where its catalog says that leases are to be
# had, and whether it has Blazar too (empty: no); see CONTRIBUTING.md.
export OPENSTACK_DIR ?= .openstack
export OPENSTACK_PORT_OFFSET ?= 0
export OPENSTACK_RESERVATION_URL ?= http://127.0.0.1:1234/v1
export OPENSTACK_BLAZAR ?=
# More arguments for pytest (all test targets) or the benchmarks (bench).
ARGS ?=

# Where Python may not write bytecode, each process compiles everything again: 13 s of processor time
# for each process of pytest.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
TESTBED = $(PYTHON) -m tests.openstack.testbed
PARALLEL := --numprocesses $(JOBS) --dist worksteal
# Folders whose tests all have a marker, so that `make test` need not import them.
MARKED := race system faults clusters browser openstack
# Tests that no other target runs with its own marker.
ELSEWHERE := not faults and not openstack and not clusters and not browser and not docs and not nightly
BUILD_SITE := $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --jobs auto
SITE := build/docs/html
# Each set of packages has a stamp; it is installed again when one of INPUTS has changed.
INSTALLED := $(VENV)/.installed
INSTALLED_TEST := $(VENV)/.installed-test
INSTALLED_DEV := $(VENV)/.installed-dev
INSTALLED_BROWSER := $(VENV)/.installed-browser
INSTALLED_DOCS := $(VENV)/.installed-docs
EXTRAS_BROWSER := test,browser
EXTRAS_DOCS := test,docs
EXTRAS_DEV := test,browser,docs,dev
INPUTS := setup.cfg pyproject.toml constraints.txt
UV := uv>=0.9,<1
PIP := $(BIN)/python -m pip --disable-pip-version-check
PACKAGES := --constraint constraints.txt --editable

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install install-dev run test test-db test-system test-openstack test-faults \
	test-faults-short test-clusters test-browser test-docs test-nightly test-nightly-local test-nightly-faults \
	test-nightly-clusters test-nightly-openstack clusters-up clusters-down \
	docs coverage lint format type check config man openstack-up openstack-down openstack-wipe bench screenshots \
	constraints release-notes dist clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) \
		| awk -F'|' '{printf "%-21s%s\n", $$1, $$2}'

install: $(INSTALLED) ## Install what `make run` needs into .venv

install-dev: $(INSTALLED_DEV) ## Install the test tools, the linters and the type checker too

run: $(INSTALLED) ## Run the service on this machine (PORT=1234 DATABASE=sqlite:///FILE CONFIG=FILE)
	@exec $(BIN)/climate-standalone $(if $(PORT),--port $(PORT)) \
		$(if $(DATABASE),--database '$(DATABASE)') $(if $(CONFIG),--config-file '$(CONFIG)')

test: $(INSTALLED_TEST) ## Run the tests that need only Python (ARGS='-k lease')
	CLIMATE_TEST_DATABASES=sqlite $(BIN)/pytest $(PARALLEL) $(MARKED:%=--ignore=tests/%) $(ARGS)

test-db: $(INSTALLED_TEST) ## Run the tests on PostgreSQL and MariaDB, and the races
	$(BIN)/pytest $(PARALLEL) -m 'db and not system and $(ELSEWHERE)' $(ARGS)

test-system: $(INSTALLED_TEST) ## Run the tests of programs, brokers, stock clients and BMCs
	$(BIN)/pytest $(PARALLEL) -m 'system and $(ELSEWHERE)' $(ARGS)

test-faults: $(INSTALLED_TEST) ## Run managers, databases and brokers into each fault at each moment
	$(BIN)/pytest $(PARALLEL) -m faults tests/faults $(ARGS)

test-faults-short: $(INSTALLED_TEST) ## Run each fault at one moment, with few leases (5 minutes)
	CLIMATE_TEST_FAULT_LEASES=12 CLIMATE_TEST_FAULT_RESULTS=.faults/short \
		$(BIN)/pytest $(PARALLEL) -m 'faults and not nightly' tests/faults $(ARGS)

test-clusters: $(INSTALLED_TEST) ## Run the tests of databases that span machines (5 minutes)
	$(BIN)/pytest -m 'clusters and not nightly' tests/clusters $(ARGS)

test-browser: $(INSTALLED_BROWSER) ## Run the tests of the web console in Chromium (4 minutes)
	$(BIN)/pytest $(PARALLEL) --timeout 600 -m 'browser and not openstack and not nightly' tests/browser $(ARGS)

test-docs: $(INSTALLED_TEST) $(INSTALLED_DOCS) ## Run the code blocks of the tutorial and the user guide (2 minutes)
	$(BUILD_SITE) docs $(SITE)
	$(BIN)/pytest $(PARALLEL) -m docs tests/docs $(ARGS)

screenshots: $(INSTALLED_BROWSER) ## Take the screenshots of README and docs anew
	$(BIN)/python -m tests.browser.screenshots

test-openstack: $(INSTALLED_BROWSER) ## Run the tests on that OpenStack, or on the one that OS_* variables name
	$(call on_openstack,openstack and not nightly)

test-nightly: $(INSTALLED_TEST) ## Run all that takes minutes: races, programs, faults, OpenStack (hours)
	@status=0; for kind in local faults clusters openstack; do \
		$(MAKE) --no-print-directory test-nightly-$$kind || status=1; \
	done; exit $$status

# First all property tests once more, with more examples.
test-nightly-local: $(INSTALLED_BROWSER)
	CLIMATE_TEST_THOROUGH=1 $(BIN)/pytest $(PARALLEL) -m '$(ELSEWHERE) and not db and not system' $(ARGS)
	$(BIN)/pytest -m 'nightly and not faults and not openstack and not clusters' $(ARGS)

test-nightly-faults: $(INSTALLED_TEST)
	$(BIN)/pytest $(PARALLEL) -m 'nightly and faults' tests/faults $(ARGS)

# As many rounds and promotions as the promises name; CI runs fewer.
test-nightly-clusters: $(INSTALLED_TEST)
	CLIMATE_TEST_CLUSTER_ROUNDS=30 CLIMATE_TEST_PROMOTIONS=10 \
		$(BIN)/pytest -m clusters tests/clusters $(ARGS)

test-nightly-openstack: $(INSTALLED_BROWSER)
	$(call on_openstack,openstack and nightly)

clusters-up: $(INSTALLED_TEST) ## Start three Galera nodes and two PostgreSQL servers on loopback
	@$(BIN)/python -m tests.clusters.testbed up

clusters-down: $(INSTALLED_TEST) ## Stop them and remove their data
	@$(BIN)/python -m tests.clusters.testbed down

openstack-up: ## Start a real OpenStack on this machine (3 minutes, later less than one)
	@$(TESTBED) up

openstack-down: ## Stop it; what it knows is kept
	@$(TESTBED) down

openstack-wipe: ## Stop it and remove all that it knows; its packages are kept
	@$(TESTBED) wipe

docs: $(INSTALLED_DOCS) ## Build the documentation into build/docs/html; a warning is an error
	$(BUILD_SITE) $(ARGS) docs $(SITE)

coverage: $(INSTALLED_DEV) ## Run the tests and show the lines that none of them reached
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

lint: $(INSTALLED_DEV) ## Check style and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@if test -x $(BIN)/hadolint; then set -x; $(BIN)/hadolint deploy/Containerfile; fi

format: $(INSTALLED_DEV) ## Lay the code out and mend what can be mended by machine
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

type: $(INSTALLED_DEV) ## Check types
	$(BIN)/mypy

check: lint type test ## Run lint, type and test

config: $(INSTALLED) ## Write etc/climate/climate.conf.sample from the options in the code
	PYTHONWARNINGS=ignore $(BIN)/oslo-config-generator \
		--config-file etc/climate/config-generator.conf

man: $(INSTALLED_TEST) ## Write docs/man/climate.1, the manual page of the command, from its parsers
	$(BIN)/python -m tests.docs.manual

bench: $(INSTALLED_TEST) ## Run the benchmarks (ARGS="admission --clients 1,4": one, with its options)
	$(BIN)/python -m benchmarks $(ARGS)

constraints: ## Write constraints.txt anew from the ranges in setup.cfg (Python 3.11)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { \
		echo "constraints.txt is made with Python 3.11: make constraints PYTHON=python3.11" >&2; \
		exit 1; }
	@set -e; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
		$(PYTHON) -m venv "$$scratch/venv"; \
		"$$scratch/venv/bin/python" -m pip install --disable-pip-version-check \
			--editable '.[memcached,$(EXTRAS_DEV)]' >"$$scratch/log" 2>&1 \
			|| { cat "$$scratch/log" >&2; exit 1; }; \
		{ sed -n '/^#/p' constraints.txt; \
			"$$scratch/venv/bin/python" -m pip freeze --exclude-editable; } >"$$scratch/new"; \
		cp "$$scratch/new" constraints.txt
	@echo "constraints.txt is new; run make check before you commit it"

dist: $(INSTALLED_TEST) ## Build a wheel and a source distribution into dist/, with the version of the git tag
	@rm -rf build dist
	@$(BIN)/python -m build --outdir dist . >$(VENV)/dist.log 2>&1 || { cat $(VENV)/dist.log >&2; exit 1; }
	@ls dist/*

release-notes: $(INSTALLED_DEV) ## Print what changed, from the notes in releasenotes/changes
	@$(BIN)/reno --quiet report --no-show-source

clean: ## Remove all that make has made, but no database and no OpenStack
	rm -rf $(VENV) build dist *.egg-info .coverage .coverage.* htmlcov \
		.hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): $(INPUTS) | $(BIN)/python
	@echo "Installing climate into $(VENV), which takes some seconds; later runs skip this"
	$(call install,.)
	@touch $@

$(INSTALLED_TEST): $(INPUTS) | $(BIN)/python
	@echo "Installing climate and the test tools into $(VENV); later runs skip this"
	$(call install,.[test])
	@touch $(INSTALLED) $@

$(INSTALLED_BROWSER): $(INPUTS) | $(BIN)/python
	@echo "Installing climate, the test tools and the driver of the browser into $(VENV)"
	$(call install,.[$(EXTRAS_BROWSER)])
	@touch $(INSTALLED) $(INSTALLED_TEST) $@

$(INSTALLED_DOCS): $(INPUTS) | $(BIN)/python
	@echo "Installing climate, the test tools and the documentation tools into $(VENV)"
	$(call install,.[$(EXTRAS_DOCS)])
	@touch $(INSTALLED) $(INSTALLED_TEST) $@

$(INSTALLED_DEV): $(INPUTS) | $(BIN)/python
	@echo "Installing climate, the test tools, the linters and the type checker into $(VENV)"
	$(call install,.[$(EXTRAS_DEV)])
	@touch $(INSTALLED) $(INSTALLED_TEST) $(INSTALLED_BROWSER) $(INSTALLED_DOCS) $@

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
		echo "climate needs Python 3.11 or later; there is no $(PYTHON) here." \
			"Name one: make install PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "climate needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
			"Name a later one: make install PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# uv installs in a quarter of pip's time. pip installs uv, and replaces it where uv cannot be had.
# The log is shown only if both fail.
define install
@{ $(BIN)/python -m uv --version || $(PIP) install '$(UV)'; } >$(VENV)/install.log 2>&1 || true
@{ $(BIN)/python -m uv pip install --python $(BIN)/python $(PACKAGES) '$(1)' \
	|| $(PIP) install $(PACKAGES) '$(1)'; } \
	>>$(VENV)/install.log 2>&1 || { cat $(VENV)/install.log >&2; exit 1; }
endef

define on_openstack
@set -e; \
	if test -z "$$OS_AUTH_URL$$OS_CLOUD" && test -f $(OPENSTACK_DIR)/openrc; then \
		. $(abspath $(OPENSTACK_DIR))/openrc; \
	fi; \
	set -x; $(BIN)/pytest -m '$(1)' tests/openstack $(ARGS)
endef
