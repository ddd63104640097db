#!/usr/bin/env bash
# NCCL's allreduce summed by our switch (CollNet), on a machine with a GPU, python3 and PyTorch.
#
#   tests/torch/nccl_collnet_on_gpu.sh pack      here: copies the plugin, the program and the libraries that it needs
#                                                from build/release to build/device/collnet
#   tests/torch/nccl_collnet_on_gpu.sh [OUTPUT] [options of nccl_collnet_on_gpu.py]
#                                                there, with build/device/collnet: runs the cases within 3 minutes;
#                                                logs and nccl-collnet.json go to OUTPUT (default build/device/out)
#
# Fails if a sum is wrong, if the switch summed nothing where it should, or if a run hangs.
set -euo pipefail
cd "$(dirname "$0")/../.."
packed=$PWD/build/device/collnet

if [ "${1:-}" = pack ]; then
  rm -rf "$packed"
  mkdir -p "$packed/lib"
  cp build/release/libnccl-net-thalweg.so build/release/thalweg "$packed"
  strip "$packed/thalweg" "$packed/libnccl-net-thalweg.so"
  # The C library, too: that of the other machine may be older.
  ldd build/release/thalweg | grep -o '/[^ ]*' | sort -u | xargs -I{} cp -L {} "$packed/lib"
  du -sh "$packed"
  exit
fi
out=${1:-build/device/out}
shift $(($# < 1 ? $# : 1))
mkdir -p "$out"
export PYTHONUNBUFFERED=1
loader=$(echo "$packed"/lib/ld-linux*)
python3 tests/torch/nccl_collnet_on_gpu.py --plugin "$packed/libnccl-net-thalweg.so" \
  --switch-command "$loader --library-path $packed/lib $packed/thalweg switch" \
  --json "$out/nccl-collnet.json" --logs "$out/nccl-collnet-nccl.log" --verbose "$@" 2>&1 | tee "$out/nccl-collnet.log"
