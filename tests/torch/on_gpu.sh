#!/usr/bin/env bash
# Builds the PyTorch backend on a machine with a GPU, which may be without a network, and runs what needs a GPU.
#
#   tests/torch/on_gpu.sh pack      here: copies what that machine may lack, from Debian's packages and .venv, to
#                                   build/device/prefix
#   tests/torch/on_gpu.sh [OUTPUT]  there, with build/device/prefix: builds for the PyTorch of its python3, runs
#                                   test_cuda.py, `bench gpu` (OUTPUT/bench-gpu.json), the example and
#                                   thalweg.lab.bench.gpu; logs go to OUTPUT (default build/device/out)
#   tests/torch/on_gpu.sh OUTPUT quick
#                                   builds, runs `bench gpu` with five sizes and one test: about 100 seconds
#
# Fails if the build, a test or a benchmark fails.
set -euo pipefail
cd "$(dirname "$0")/../.."
prefix=$PWD/build/device/prefix
libraries=$prefix/usr/lib/x86_64-linux-gnu

pack() {
  local packages=(libhwy-dev libhwy1 coinor-libclp-dev coinor-libclp1 coinor-libcoinutils-dev coinor-libcoinutils3v5
                  libpugixml-dev libpugixml1v5 libeigen3-dev libisal-dev libisal2 libbz2-1.0 liblapack3 libblas3 libgfortran5 libquadmath0)
  rm -rf "$prefix"
  mkdir -p "$prefix/python"
  dpkg -L "${packages[@]}" | grep -E '^(/lib|/usr/(include|lib|share/eigen3))/' | sort -u |
    tar -C / --no-recursion --transform 's,^/lib/,usr/lib/,;s,^/,,' -P -cf - -T - | tar -C "$prefix" -xf -
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
  printf 'Name: clp\nDescription: Clp\nVersion: 1.17\nLibs: -L%s -lClp -lCoinUtils\nCflags: -I%s/usr/include/coin\n' \
    "$libraries" "$prefix" >"$libraries/pkgconfig/clp.pc"
  printf 'Name: libisal\nDescription: ISA-L\nVersion: 2.30\nLibs: -L%s -lisal\nCflags: -I%s/usr/include\n' \
    "$libraries" "$prefix" >"$libraries/pkgconfig/libisal.pc"
  # Warnings are errors only with the compilers that we test with; this may be another one.
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
export LD_LIBRARY_PATH=$libraries:$libraries/lapack:$libraries/blas${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PYTHONPATH=$PWD/python
python3 -c 'import pytest' 2>/dev/null || export PYTHONPATH=$PYTHONPATH:$prefix/python
build >"$out/build.log" 2>&1 || { tail -40 "$out/build.log"; exit 1; }
status=0
export PYTHONUNBUFFERED=1
bench_gpu() { # NAME OPTIONS...
  local name=$1
  shift
  timeout 250 python3 -m thalweg.lab.bench.gpu_allreduce "$@" --out "$out/$name.json" 2>&1 | tee "$out/$name.log" || status=1
}
if [ "${2:-}" = quick ]; then
  bench_gpu bench-gpu-quick --sizes 1KiB,64KiB,1MiB,16MiB,64MiB --rounds 3 --turn 0.07
  timeout 25 python3 -m pytest -q -p no:cacheprovider tests/torch/test_cuda.py -k odd_places-1 2>&1 | tee "$out/tests.log" || status=1
  exit $status
fi
python3 -m pytest -v -p no:cacheprovider tests/torch/test_cuda.py 2>&1 | tee "$out/tests.log" || status=1
bench_gpu bench-gpu
python3 -m torch.distributed.run --standalone --nproc-per-node 2 examples/ddp_digits.py --backend cpu:gloo,cuda:thalweg \
  --device cuda 2>&1 | tee "$out/example.log" || status=1
for ranks in 1 2; do
  python3 -m thalweg.lab.bench.gpu --ranks "$ranks" --json "$out/gpu-$ranks.json" 2>&1 | tee "$out/gpu-$ranks.log" || status=1
done
exit $status
