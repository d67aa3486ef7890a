#!/bin/sh
# The build step of both container recipes: the volta stack, Horovod with NCCL for sm_70, and trainscale, in one environment.
# Runs in the project's folder; CUDA_HOME names a CUDA 12 toolkit with nvcc. Usage: containers/install.sh /opt/trainscale
set -eu
environment="$1"
python3 -m venv "$environment"
PATH="$environment/bin:$PATH"
XDG_CACHE_HOME="$(mktemp -d)" # the wheel that was built is installed, and not kept a second time
PIP_NO_CACHE_DIR=1
export PATH XDG_CACHE_HOME PIP_NO_CACHE_DIR
python -m pip install --requirement requirements/volta.txt
python -m launch.horovod_build --gpu --architecture 70
python -m pip install --no-deps --no-build-isolation .
rm -rf "$XDG_CACHE_HOME"
# Fails the build when a library of the stack cannot run on a V100.
python -m launch.wheel_architectures requirements/volta.txt --need sm_70
