# make demo | cluster-demo | test | lint | bench: each brings what it needs. TRAINSCALE_MPI=/opt/openmpi chooses an MPI.
# STACK=volta takes requirements/volta.txt (V100) in a virtual environment of its own, .venv-volta, beside the default one.
PYTHON ?= python3
STACK ?= default
VENV ?= .venv$(if $(filter-out default,$(STACK)),-$(STACK))
BIN := $(VENV)/bin
export TRAINSCALE_MPI

.PHONY: demo cluster-demo test test-gpu test-all lint bench setup clean
.DELETE_ON_ERROR:

setup: $(VENV)/.horovod

$(VENV)/.installed: requirements/$(STACK).txt requirements/base.txt requirements/dev.txt setup.py
	@echo "Installing the pinned stack into $(VENV): 5 GB, 2 to 6 minutes the first time"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/$(STACK).txt -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# GPU=1 builds Horovod with NCCL: needs nvcc of the CUDA that the stack's torch was built with (docs/stacks.md).
$(VENV)/.horovod: $(VENV)/.installed launch/horovod_build.py launch/cuda_home.py
	$(BIN)/python -m launch.horovod_build $(if $(GPU),--gpu)
	touch $@

demo: setup
	$(BIN)/trainscale sweep experiments/demo.yaml --runs runs/demo --report

# Needs root. 500 Mbit/s: on two cores the exchange of ResNet-50's gradients then takes longer than computing them.
cluster-demo: setup
	$(PYTHON) launch/emulation/packages.py
	$(BIN)/trainscale cluster run --nodes 4 --rails 2 --rate 500mbit -- \
	  $(BIN)/trainscale submit experiments/cluster-demo.yaml --site slurm/sites/emulated.yaml --runs runs/cluster-demo \
	  --wait --report

test: setup
	$(BIN)/python -m pytest -m "not slow"

# On a GPU machine; GPU=1 builds Horovod with NCCL. INSTALLED=1 PYTHON=… installs nothing and takes what that Python has.
test-gpu: $(if $(INSTALLED),,setup)
	$(if $(INSTALLED),$(PYTHON) -m pytest -o addopts=,$(BIN)/python -m pytest) tests/training/gpu -m gpu -v -rs -s

test-all: setup
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/hadolint containers/Dockerfile
	$(BIN)/shellcheck containers/install.sh

bench: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build *.egg-info
