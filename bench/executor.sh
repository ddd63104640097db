#!/bin/bash
# Compares two builds of `thalweg` over DLCP and TCP, in turn. Needs root (network namespaces) and a quiet machine; takes about
# 15 minutes on two cores.
#
#   bench/executor.sh BEFORE AFTER [TURNS]      paths of the two programs; prints medians and p99 in ms
set -euo pipefail
before=$1 after=$2 turns=${3:-3}
compare() {
  local label=$1
  shift
  for ((turn = 0; turn < turns; ++turn)); do
    for program in "$before" "$after"; do
      "$program" bench allreduce --json "$@" 2>/dev/null | python3 -c '
import json, sys
for row in json.load(sys.stdin)["rows"]:
    print(sys.argv[1], sys.argv[2], row["transport"], row["size"], round(row["p50_us"] / 1000, 3),
          round(row["p99_us"] / 1000, 3), "wrong:", row["wrong"])' "$label" "$program"
    done
  done
}
for ranks in 2 4; do
  link="--ranks $ranks --netns --rate 200M --transport dlcp --sizes 1MiB,4MiB"
  compare "$ranks-clean" $link
  compare "$ranks-loss" $link --loss 0.5%
  compare "$ranks-bound" $link --loss 0.5% --bound 1%
done
compare 2-tcp --ranks 2 --transport tcp
