# `make demo` trains the tiny agent and prints what it learned; `make test` checks the code. Both create .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PACKAGES := sandbox swe worlds adapters rewards synthesis
EDITABLE := $(foreach name,$(PACKAGES),-e packages/turnwise-$(name))
# What worlds start: a browser, provers, Java.
DEBIAN := chromium-headless-shell metamath coq default-jre-headless
PEERS := TRL_EXPERIMENTAL_SILENCE=1 OMP_NUM_THREADS=1 .venv-peers/bin/python

# With it every process that a test or a run starts would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-real reference cards test test-core test-shuffled test-slow test-worlds system test-models crash soak lint setup models bench peers golden golden-check test-adapters gateway-clients vllm test-vllm test-scale voices worlds soak-worlds wheels clean

help: ## List the targets.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/'

demo: $(STAMP) ## Train recipes/search_r1/tiny.toml from random weights and write a report.
	$(BIN)/turnwise train recipes/search_r1/tiny.toml

demo-real: $(STAMP) ## Fetch SmolLM2-135M, train it to use a calculator and Python, ask the same question before and after RL.
	$(BIN)/turnwise models get smollm2-135m
	$(BIN)/turnwise train recipes/retool/smollm2.toml run.name=demo_real "environment.args.kinds={steps2=0.75,growth=0.25}" \
	  sft.steps=56 sft.num_demonstrations=448 train.steps=28 evaluate.tasks=100 "evaluate.controls={}"
	@run=$$(ls -td runs/demo_real-* | head -n 1); \
	  echo; echo "The same question before RL and after it:"; echo; \
	  $(BIN)/turnwise ask $$run --task 0 --step 0; echo; $(BIN)/turnwise ask $$run --task 0

test: lint ## Check lint, types and tests.
	$(BIN)/python -m pytest -n 3 -m "not slow and not system"

test-core: ## The tests of the core and the sandbox, in .venv-core, where no other package is installed.
	[ -x .venv-core/bin/python ] || $(PYTHON) -m venv .venv-core
	.venv-core/bin/python -m pip install --quiet -c constraints.txt -e packages/turnwise-sandbox -e '.[dev]'
	.venv-core/bin/python -m pytest -n 3 -m "not slow and not system" tests packages/turnwise-sandbox/tests

SEED ?= 1
test-shuffled: $(STAMP) ## The tests in an order drawn from SEED, modules and the tests in them.
	$(BIN)/python -m pytest -n 3 -m "not slow and not system" --random-order-bucket=module --random-order-seed=$(SEED)

test-slow: $(STAMP) ## The slow tests: hundreds of kills, cancellations and escape attempts, crashes at every place.
	$(BIN)/python -m pytest -m slow --durations=5

test-models: $(STAMP) ## Every causal language model of transformers, tiny: path, log-probabilities, samples and a step against transformers alone.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "slow or not slow" tests/models

system: ## Install the programs that worlds start (Debian; needs root): a browser, Coq, Metamath, Java.
	@dpkg -s $(DEBIAN) > /dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 $(DEBIAN); }

test-worlds: $(STAMP) system ## The tests of worlds on real programs: Chromium, Coq, Metamath, MuJoCo.
	$(BIN)/python -m pip install --quiet -c constraints.txt -e 'packages/turnwise-worlds[web,bodies]'
	$(BIN)/python -m pytest -n 2 -m system packages/turnwise-worlds/tests

crash: $(STAMP) ## Kill a training run 1,000 times at random; fail if a token is lost, double or too old.
	$(BIN)/python benchmarks/crash.py

soak: $(STAMP) ## Run 100,000 sandboxed executions; fail if anything is left behind.
	$(BIN)/python benchmarks/sandbox_soak.py

reference: $(STAMP) ## Write docs/options.md, docs/metrics.md and docs/api.md from the docstrings.
	$(BIN)/turnwise options --markdown > docs/options.md
	$(BIN)/turnwise metrics --markdown > docs/metrics.md
	$(BIN)/python docs/write_api.py

cards: $(STAMP) ## Measure the card of every recipe again, and write the table of docs/cards.md.
	PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/python benchmarks/cards.py

lint: $(STAMP) ## Check lint and types.
	$(BIN)/ruff check .
	$(BIN)/mypy

setup: $(STAMP) ## Create .venv and install.

models: $(STAMP) ## Print the table of those models, as Markdown.
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/models.py

bench: $(STAMP) ## Measure the throughput of rollout and training, as JSON.
	@$(BIN)/python benchmarks/throughput.py

peers: ## Install verl and TRL in .venv-peers, for comparison.
	PYTHON=$(PYTHON) sh peers/setup.sh

golden: peers ## Recompute the numbers of tests/agreement with verl and TRL.
	$(PEERS) -W ignore -m peers.make_golden
	$(PEERS) -W ignore -m peers.sft_cases

golden-check: peers ## Compare the committed numbers with those of verl and TRL.
	$(PEERS) -W ignore -m peers.make_golden --check
	$(PEERS) -W ignore -m peers.sft_cases --check

test-adapters: ## Install the packages that adapters serve, a group at a time, and run the adapters' tests.
	PYTHON=$(PYTHON) sh adapters/setup.sh

gateway-clients: $(STAMP) ## Install other people's clients, a group at a time, and print how the gateway recognises them.
	PYTHON=$(PYTHON) TURNWISE=$(BIN)/python sh clients/setup.sh

wheels: ## Build the wheels of all packages, install them outside the checkout and train there by short names.
	PYTHON=$(PYTHON) sh packages/try_wheels.sh

soak-worlds: $(STAMP) system ## Play 1,000 episodes in a browser and prove 5,000 theorems in Coq; fail if anything is left behind.
	$(BIN)/python -m pip install --quiet -c constraints.txt -e 'packages/turnwise-worlds[web,bodies]'
	$(BIN)/python benchmarks/soak_browser.py
	$(BIN)/python benchmarks/soak_coq.py

worlds: $(STAMP) system ## Train every recipe of web, proofs, houses and bodies on three seeds (hours), and print the table of docs/worlds.md.
	$(BIN)/python -m pip install --quiet -c constraints.txt -e 'packages/turnwise-worlds[web,bodies]' -e 'packages/turnwise-adapters[crafter]'
	$(BIN)/python benchmarks/worlds.py train

voices: $(STAMP) ## Train every recipe of several voices on three seeds (hours), and print their table.
	$(BIN)/python benchmarks/voices.py train

vllm: ## Install vLLM for the CPU in .venv-vllm, for engine.kind=vllm and for comparison.
	PYTHON=$(PYTHON) sh peers/vllm_setup.sh

test-scale: $(STAMP) ## The tests of ranks, rollout processes and real Ray clusters (two nodes need root), and 40 kills.
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,ray]' $(EDITABLE)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/scale tests/unit/training/test_ranks.py tests/e2e/test_rollout_processes.py tests/unit/hosts -o faulthandler_timeout=1200
	$(BIN)/python benchmarks/kills.py --kills 40

test-vllm: $(STAMP) vllm ## The tests of the vLLM engine on the real vLLM.
	TURNWISE_VLLM=.venv-vllm/bin/python OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/unit/engines/vllm tests/unit/engines/server -o faulthandler_timeout=1200

clean: ## Remove .venv and caches; run folders stay.
	rm -rf $(VENV) .venv-core .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Turnwise needs Python 3.11 or newer, $(PYTHON) is older; name one: make PYTHON=python3.12 <target>" >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(BIN)/python pyproject.toml $(wildcard packages/*/pyproject.toml) constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]' $(EDITABLE)
	@touch $(STAMP)
