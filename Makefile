# Every target makes the virtual environment it needs (.venv) and installs only what that target uses;
# it installs again when pyproject.toml changes. Nothing but make and Python 3.11 or newer has to be there before.

PYTHON ?= python3
VENV   ?= .venv
JAX_PYTHON ?= python3.12
PYTHONS ?= python3.11 python3.12 python3.13
ARGS   ?=

PY := $(VENV)/bin/python

.DEFAULT_GOAL := help
.PHONY: help demo test test-gpu docs package odd bench bench-gpu cubins mutants schedules soak lint clean
.DELETE_ON_ERROR:

help: ## show this page
	@echo "Palladio: a kernel language for tile programs, embedded in Python."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12   the interpreter that makes $(VENV) (3.11 or newer; now: $(PYTHON))"
	@echo "  ARGS='...'          more arguments for what the target runs: make test ARGS='tests/architecture -k floors'"

demo: $(VENV)/.installed-demo ## train a mixture of experts on handwritten digits through our own kernels
	$(PY) -m palladio.demo $(ARGS)

test: lint ## lint, check the types, then run every test on all cores
	$(PY) -m pytest -n auto --dist worksteal $(ARGS)

docs: $(VENV)/.installed-docs ## build the site in build/site, and try it in a browser without a window
	$(PY) -m tools.site
	$(PY) -m mkdocs build --quiet
	$(PY) -m pytest -q tests/site/browser.py tests/site/timeline_page.py $(ARGS)

package: $(VENV)/.installed-package ## build the wheel and the sdist; try them, and each extra, in empty environments
	$(PY) -m tools.package $(ARGS) $(PYTHONS)

# No docstrings and no asserts, a foreign locale (ASCII where it is not installed), another order of sets, a cache folder
# that cannot be written to, one thread. pytest warns that asserts outside of tests are gone, which is the point.
# PyTorch's compiler does not work in a locale without Unicode, nor Transformers without docstrings.
odd: $(VENV)/.installed-test ## run a selection of the tests under unusual settings
	PYTHONOPTIMIZE=2 LC_ALL=tr_TR.ISO-8859-9 PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 PYTHONHASHSEED=2718 \
	XDG_CACHE_HOME=/dev/null PALLADIO_NUM_THREADS=1 $(PY) -m pytest -n auto --dist worksteal \
	  -W ignore::pytest.PytestConfigWarning -W ignore::pytest.PytestAssertRewriteWarning \
	  tests/call tests/cli tests/cpu/test_bounds.py tests/cpu/test_object_store.py tests/docs/test_snippets.py \
	  tests/errors/test_arguments.py tests/errors/test_signatures.py tests/interop/test_jax.py tests/interop/test_torch.py \
	  tests/library/test_gmm.py --deselect 'tests/docs/test_snippets.py::test_the_page_runs_from_top_to_bottom[docs/pytorch.md]' $(ARGS)

bench: $(VENV)/.installed-bench $(VENV)/jax/.installed ## measure side by side with the peers, in one run
	$(PY) -m benchmarks $(ARGS)

test-gpu: $(VENV)/.installed-test ## on a Hopper card: what only a card can settle, then the conformance suite (ten minutes at most)
	$(PY) -m benchmarks.gpu test $(ARGS)

bench-gpu: $(VENV)/.installed-test ## on a Hopper card: the benchmarks beside PyTorch and others (ten minutes at most)
	$(PY) -m benchmarks.gpu bench $(ARGS)

cubins: $(VENV)/.installed-test ## every conformance row in every dtype, by NVRTC and on the host twin; no GPU is needed
	$(PY) -m pytest -n auto -q --every-dtype tests/hopper/every_cubin.py tests/conformance/test_dtypes_on_twin.py \
	  tests/conformance/test_special_values.py $(ARGS)
	$(PY) -m tools.compile_times

mutants: $(VENV)/.installed-test ## break the library's concurrent kernels in every way and see what the checker says
	$(PY) -m tools.mutants $(ARGS)

schedules: $(VENV)/.installed-test ## check the concurrent kernels of the library, of mpmd_map and of the mutants under 1,000 schedules
	$(PY) -m pytest -n auto tests/library/test_hopper_schedules.py tests/mpmd/test_examples.py \
	  tests/machine/test_mutant_idioms.py --schedules=1000 $(ARGS)

soak: $(VENV)/.installed-test ## ten minutes of calls under bad conditions: interrupts, forks, threads; prints counts
	$(PY) -m tools.soak $(ARGS)

lint: $(VENV)/.installed-test ## ruff and mypy only
	$(PY) -m ruff check .
	$(PY) -m mypy

clean: ## remove the virtual environment, caches and build outputs
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Palladio needs Python 3.11 or newer, and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)"; \
	  echo "Name another one: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu the package python3-venv brings it."; exit 1; }

# The JAX that has an interpreter of GPU kernels needs a newer Python; without one, its row says so.
$(VENV)/jax/.installed: | $(VENV)/pyvenv.cfg
	@if $(JAX_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then \
	  echo "Installing the newest JAX beside it, with $(JAX_PYTHON) (once) ..."; \
	  $(JAX_PYTHON) -m venv $(VENV)/jax && \
	  $(VENV)/jax/bin/python -m pip install --quiet --disable-pip-version-check 'jax>=0.12' absl-py && touch $@; \
	else \
	  echo "No $(JAX_PYTHON): the row of JAX's GPU interpreter stays empty; make bench JAX_PYTHON=... names one."; \
	fi

$(VENV)/.installed-%: pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "Installing what 'make $*' needs into $(VENV) (once; it can take some minutes) ..."
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@
