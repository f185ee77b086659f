# Everything that one types here. `make demo` and `make test` set the machine up by themselves.

VENV   := .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DEV    := $(VENV)/.dev
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --prefer-binary
SECONDS_TO_FUZZ ?= 600
# one worker has all tests of a file, which share what they set up
SHARED := --numprocesses 2 --dist loadfile --no-loadscope-reorder
# a new package is known to the editable install only after installing again
SOURCES := $(shell find csrc -type f) CMakeLists.txt pyproject.toml $(shell find src -name __init__.py)

# tests start hundreds of processes; without .pyc files each would compile all of it again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-quick lint bench fuzz clean

help:
	@echo "make demo    set up, build, and train over a slow network, plain and with Laconic: report.html"
	@echo "make test    set up, build, and run the tests"
	@echo "make test-quick   the tests that take no ranks, no lab and no training: under a minute, for the inner loop"
	@echo "make lint    ruff, mypy, import-linter"
	@echo "make bench   the benchmarks of codecs, training and serving; DUMPS=folder, DATA=folder add data of your own"
	@echo "make fuzz    attack the decoders for $(SECONDS_TO_FUZZ) seconds (needs clang)"
	@echo "make clean   remove the environment and everything built"

demo: $(READY)
	@$(BIN)/laconic info
	@$(BIN)/laconic demo

test: $(DEV)
	$(BIN)/python -m pytest $(SHARED)

test-quick: $(DEV)
	$(BIN)/python -m pytest $(SHARED) --quick

lint: $(DEV)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(DEV)
	$(BIN)/python -m benchmarks codecs $(if $(DUMPS),--data $(DUMPS))
	$(BIN)/python -m benchmarks train $(if $(DATA),--data $(DATA))
	$(BIN)/python -m benchmarks serve $(if $(DATA),--data $(DATA))

fuzz:
	fuzz/run $(SECONDS_TO_FUZZ)

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# The environment: torch first and by its exact version, so that nothing pulls in another build.
$(READY): $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "laconic: Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1); try make PYTHON=python3.12"; exit 1; }
	@command -v $${CXX:-c++} >/dev/null || \
	  { echo "laconic: no C++ compiler ($${CXX:-c++}) found; install one (Debian, Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++) or set CXX"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "laconic: cannot make a virtual environment (Debian, Ubuntu: apt-get install python3-venv)"; exit 1; }
	@echo "installing torch into $(VENV) (once; some minutes on a slow network)"
	@$(PIP) torch==2.13.0 scikit-build-core nanobind cmake ninja
	@echo "building the kernels, installing laconic"
	@$(PIP) --no-build-isolation --editable '.[data,lab,plan,quantize,report,serve]'
	@touch $@

# What tests and benchmarks need beyond that; laconic itself is installed already.
$(DEV): $(READY)
	@echo "installing what tests it and what it is compared with"
	@$(PIP) 'laconic[bench,dev,xdp]'
	@touch $@
