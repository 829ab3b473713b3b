# The commands of the house. Each sets up what it needs first; that is quick when nothing has changed.

SHARED_DEMOS := ../shared/kitchen/relay_demos.npz
# Where tests find recorded demonstrations; those that need them are skipped, and say so, where there are none.
XSKILL_DEMOS ?= $(realpath $(wildcard $(SHARED_DEMOS)))
export XSKILL_DEMOS

.PHONY: help setup demo test test-peers check format

help: ## Show these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv and install everything into it
	@scripts/setup

demo: setup ## See it work, with nothing to prepare
	@.venv/bin/xskill demo

test: setup ## Run all tests
	.venv/bin/python -m pytest -n 2 --dist worksteal

test-peers: ## Let LeRobot itself read our datasets, and read those it writes (installs it apart, in .venv-peers)
	@scripts/setup-peers
	.venv-peers/bin/python -m pytest tests/peers

check: setup ## Formatting, lint, types and import contracts
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo

format: setup ## Format the code and mend what lint can
	.venv/bin/ruff check --fix --quiet .
	.venv/bin/ruff format .
