#!/bin/sh
# Measures the straggler bound on 16 idle cores (root; about 12 minutes). Needs build/release/thalweg and
# thalweg_torch. Writes JSON to the folder given, or to build/stragglers.
set -eu
cd "$(dirname "$0")/.."
out=${1:-build/stragglers}
mkdir -p "$out"
step="build/release/thalweg bench step --testbed single-switch:hosts=4,host=100M,delay=2ms --model resnet18
  --scale 0.01 --device-scale 0.001 --against gloo --libraries tcp,tcp+straggler --straggler-bound 5%
  --steps 200 --no-simulation --json"
# All communication, without stalls (2 minutes) and with the stalls of e2e/tail-3 (3 minutes).
$step > "$out/step-quiet.json"
$step --stall-every 600ms --stall-for 104ms > "$out/step-stalls.json"
# Training: exact, Gloo, bound 1 % and straggler bound 5 %, with stalls (4 minutes), and the exact and the
# straggler library without them, for the ratio of means (3 minutes).
build/release/thalweg reproduce e2e/tail-3 --json > "$out/tail-3.json"
sed -e 's/^stall:.*/probes: 0/' -e '/^probes: 300/d' -e 's/^libraries:.*/libraries: [gloo, thalweg, straggler]/' \
  experiments/e2e/tail-3.yaml > "$out/quiet.yaml"
PYTHONPATH=python .venv/bin/python -m thalweg.lab.e2e --json "$out/quiet.yaml" > "$out/quiet.json"
