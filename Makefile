# The commands of the house. Each sets up what it needs first; that is quick when nothing has changed.

SHARED_DEMOS := ../shared/kitchen/relay_demos.npz
# Where tests find recorded demonstrations; those that need them are skipped, and say so, where there are none.
XSKILL_DEMOS ?= $(realpath $(wildcard $(SHARED_DEMOS)))
export XSKILL_DEMOS

.PHONY: help setup demo test check format

help: ## Show these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv and install everything into it
	@scripts/setup

demo: setup ## See it work, with nothing to prepare
	@.venv/bin/xskill demo

test: setup ## Run all tests
	.venv/bin/python -m pytest -n 2 --dist worksteal

check: setup ## Formatting, lint, types and import contracts
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo

format: setup ## Format the code and mend what lint can
	.venv/bin/ruff check --fix --quiet .
	.venv/bin/ruff format .
