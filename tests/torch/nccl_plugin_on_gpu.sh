#!/usr/bin/env bash
# NCCL over the plugin on a machine with a GPU, python3 and PyTorch; nothing else of Thalweg is needed there.
#
#   tests/torch/nccl_plugin_on_gpu.sh libnccl-net-thalweg.so [OUTPUT] [options of nccl_plugin_on_gpu.py]
#
# Prints a table for 2 and 4 ranks and writes OUTPUT/nccl-plugin.json (default: build/device/out). Fails if a sum is
# wrong, if NCCL did not take the plugin, or if a run hangs.
set -euo pipefail
plugin=${1:?the path of libnccl-net-thalweg.so}
out=${2:-build/device/out}
shift $(($# < 2 ? $# : 2))
mkdir -p "$out"
export PYTHONUNBUFFERED=1
python3 "$(dirname "$0")/nccl_plugin_on_gpu.py" --plugin "$plugin" --json "$out/nccl-plugin.json" --verbose "$@" 2>&1 |
  tee "$out/nccl-plugin.log"
