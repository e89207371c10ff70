.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo test test-slow docs package lint types contracts tests install clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch .venv/installed

install: .venv/installed ## make the virtual environment in .venv

demo: install ## compare nine methods on the data inside the package: a table and pictures
	$(BIN)/idiolect run

test: lint types contracts tests ## all that CI runs: lint, format, types, import contract, doctests, tests

test-slow: install ## the full product of methods, models and engines; long
	$(BIN)/python -m pytest -q -n 2 -m slow

lint: install ## style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install ## static types of the whole package
	$(BIN)/mypy src/idiolect

contracts: install ## which room may import which
	$(BIN)/lint-imports

tests: install ## tests, doctests and the README's blocks
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

docs: install ## build the site into the folder site; open site/index.html
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

package: install ## build wheel and source distribution, check both, try the wheel in an empty environment; REPOSITORY=address
	rm -rf build dist
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[release]'
	REPOSITORY=$(REPOSITORY) $(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/python scripts/try_package.py dist

clean: ## remove the virtual environment and caches
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
