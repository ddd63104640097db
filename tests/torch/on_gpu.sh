#!/usr/bin/env bash
# Builds the PyTorch backend on a machine with a GPU, also one without a way to the outside, and runs what needs a GPU.
#
#   tests/torch/on_gpu.sh pack      here: what that machine may lack, of Debian's packages and .venv, into build/device/prefix
#   tests/torch/on_gpu.sh [OUTPUT]  there, with build/device/prefix: builds for the PyTorch of its python3, runs
#                                   test_cuda.py and thalweg.bench.gpu; logs go to OUTPUT (default build/device/out)
#
# It fails if the build, a test or the benchmark does, and says how much of a pinned copy's speed the staging reaches.
set -euo pipefail
cd "$(dirname "$0")/../.."
prefix=$PWD/build/device/prefix
libraries=$prefix/usr/lib/x86_64-linux-gnu

pack() {
  local packages=(libhwy-dev libhwy1 libglpk-dev libglpk40 libpugixml-dev libpugixml1v5 libeigen3-dev libgmp10 libamd2
                  libcolamd2 libsuitesparseconfig5 libltdl7)
  rm -rf "$prefix"
  mkdir -p "$prefix/python"
  dpkg -L "${packages[@]}" | grep -E '^/usr/(include|lib|share/eigen3)/' | sort -u |
    tar -C / --no-recursion --transform 's,^/,,' -P -cf - -T - | tar -C "$prefix" -xf -
  local site
  site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  cp -r "$site"/{pytest,_pytest,py.py,pluggy,iniconfig,packaging} "$prefix/python"
  du -sh "$prefix"
}

build() {
  local torch
  torch=$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))')
  mkdir -p "$libraries/pkgconfig"
  printf 'Name: libhwy\nDescription: Highway\nVersion: 1.0\nLibs: -L%s -lhwy\nCflags: -I%s/usr/include -DHWY_SHARED_DEFINE\n' \
    "$libraries" "$prefix" >"$libraries/pkgconfig/libhwy.pc"
  # Warnings are errors for the compilers that we test with; this may be another.
  PKG_CONFIG_PATH=$libraries/pkgconfig cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DTHALWEG_TORCH_ONLY=ON \
    -DTHALWEG_TORCH="$torch" -DPython3_EXECUTABLE="$(command -v python3)" -DCMAKE_PREFIX_PATH="$prefix/usr" \
    -DCMAKE_LIBRARY_PATH="$libraries" -DCMAKE_CXX_FLAGS="-w -I$prefix/usr/include -L$libraries"
  cmake --build build/gpu --target thalweg_torch
}

if [ "${1:-}" = pack ]; then
  pack
  exit
fi
out=${1:-build/device/out}
mkdir -p "$out"
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PYTHONPATH=$PWD/python
python3 -c 'import pytest' 2>/dev/null || export PYTHONPATH=$PYTHONPATH:$prefix/python
build >"$out/build.log" 2>&1 || { tail -40 "$out/build.log"; exit 1; }
status=0
python3 -m pytest -v -p no:cacheprovider tests/torch/test_cuda.py 2>&1 | tee "$out/tests.log" || status=1
python3 -m torch.distributed.run --standalone --nproc-per-node 2 examples/ddp_digits.py --backend cpu:gloo,cuda:thalweg \
  --device cuda 2>&1 | tee "$out/example.log" || status=1
for ranks in 1 2; do
  python3 -m thalweg.bench.gpu --ranks "$ranks" --json "$out/gpu-$ranks.json" 2>&1 | tee "$out/gpu-$ranks.log" || status=1
done
exit $status
