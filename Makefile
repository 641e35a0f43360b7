# `make help` lists the targets. Outside this folder lie only the model (in ~/.cache/kvbook, or where KVBOOK_CACHE
# says) and, where they were missing, the browser and the sandbox of the tests.

VENV    := .venv
BIN     := $(VENV)/bin
READY   := $(VENV)/.ready
NODE    := node_modules/.package-lock.json
SITE    := _build/html
TWO     := -n 2 --dist loadfile# two processes, each test module in one of them
LONG_FIRST := --no-loadscope-reorder# as they are collected: the browser's, which take longest, first
BOOK_URL ?=# the address of the published book, where it is not the one in _config.yml
LAB     ?=# further options of `jupyter lab`, such as --no-browser or, in a container, --allow-root
OUT     := measurements/mine.json
MINE    := mine

# The same settings for every run. Threads that wait give their core to others: these runs share cores.
export PYTHONHASHSEED := 0
export TOKENIZERS_PARALLELISM := false
export HF_HUB_OFFLINE := 1
export OMP_WAIT_POLICY := PASSIVE
export BOOK_URL

.DEFAULT_GOAL := help
.PHONY: help book test check lessons lab measure bench mutants bundles assignments publish-config format model clean node-found browser-found sandbox-found

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

book: $(READY) ## build the static book into _build/html
	@$(BIN)/python tools/sphinx/book_address.py
	@$(BIN)/jupyter-book build . --warningiserror --nitpick --keep-going --quiet
	@echo "The book is built: open $(SITE)/index.html in a browser."

test: node-found browser-found sandbox-found check ## run every check: the fast part, every lesson again, the built book in a real browser
	$(BIN)/python -m pytest $(TWO) --nbval --nbval-current-env --nbval-cell-timeout 180 \
		--nbval-sanitize-with tests/nbval_sanitize.cfg --override-ini addopts=-q notebooks book/index.ipynb
	@rm -rf $(SITE)
	@$(MAKE) --no-print-directory book
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(TWO) $(LONG_FIRST) -m "book or browser or grading or colab"

check: node-found $(READY) $(NODE) model ## run the fast checks: style, types, copies, unit tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/lessons.py --check
	node tools/bundle.mjs --check && node tools/vendor.mjs --check
	node --test tests/js/*.test.js
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(TWO) -m "not book and not browser and not grading and not colab"

lessons: node-found $(READY) $(NODE) model ## regenerate modules and notebooks from notebooks/*.py, and execute what changed
	node tools/bundle.mjs && node tools/vendor.mjs
	$(BIN)/python tools/lessons.py

lab: $(READY) model ## open the lessons in JupyterLab; LAB=--allow-root or others are passed on to it
	$(BIN)/jupyter lab --notebook-dir . --LabApp.default_url=/lab/tree/notebooks/01_decoder.ipynb $(LAB)

measure: $(READY) ## fill caches of many shapes and compare with the prediction; OUT=measurements/NAME.json names the record
	@$(BIN)/python -m kvbook measure --out $(OUT)

bench: $(READY) $(NODE) model ## time lessons, book and checks (WHOLE=1: make test too), decode steps, paging and the ledger; MINE=NAME names the records
	@$(BIN)/python tools/speed.py $(if $(WHOLE),--whole)
	@for what in decode blocks ledger; do \
		$(BIN)/python -m kvbook measure --what $$what --out measurements/$${what}_$(MINE).json || exit; \
	done
	@if command -v bwrap > /dev/null; then $(BIN)/python tools/grading_rate.py; fi

mutants: $(READY) model ## change one line of a lesson's module, see whether its tests notice, 300 times: an hour or less
	@$(BIN)/python tools/mutants.py

bundles: node-found $(NODE) ## bundle the explorers' JavaScript into kvbook/explorer/static
	node tools/bundle.mjs && node tools/vendor.mjs

assignments: $(READY) ## make each assignment's student notebook, solution and autograder zip, into _build/assignments
	@$(BIN)/python tools/assignments.py

publish-config: $(READY) ## name the book's repository: URL=https://github.com/OWNER/NAME, or URL= for none
	@$(BIN)/python tools/publish_config.py $${URL+"$$URL"}

format: $(READY) ## format the Python code
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

model: $(READY)
	@$(BIN)/python -m kvbook.models > /dev/null

clean: ## remove what was built (the virtual environment and node_modules stay)
	rm -rf _build

$(VENV)/bin/pip:
	@sh tools/make_venv.sh $(VENV)

$(READY): requirements.txt pyproject.toml $(VENV)/bin/pip
	@echo "Installing what requirements.txt pins (a few minutes the first time)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

node-found:
	@sh tools/need_node.sh

browser-found: $(VENV)/bin/pip
	@$(BIN)/python tools/browser.py

sandbox-found: $(VENV)/bin/pip
	@$(BIN)/python tools/bubblewrap.py

$(NODE): package.json package-lock.json
	@npm ci --silent
	@touch $@
