#!/usr/bin/env bash
# Four ranks in two racks sum through the switches of both racks, on a testbed (docs/testbed.md; needs
# root): the leaf of each rack sums its own ranks, and the leaf of the servers sums the racks. Prints what
# both leaves completed and what crossed the uplinks: without loss, with 1 % of all packets lost, and while
# the leaf of the servers is started again, which then sums again.
# usage: two_racks_two_levels.sh [iterations [elements]]
set -euo pipefail
cd "$(dirname "$0")/.."
iterations=${1:-60}
elements=${2:-100000}
program=build/release/thalweg
worker=build/release/examples/atp_sum
name=two-racks
folder=$(mktemp -d)
bed() { "$program" testbed "$1" --name "$name" "${@:2}"; }
trap 'bed down >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

bed up leaf-spine:racks=2,hosts=2,spines=1,host=50M,uplink=25M --aggregate leaf0 --aggregate leaf1

ask() { # LEAF
  control=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["aggregators"][int(sys.argv[2])]["control"])' \
    "$folder/before.json" "$1")
  bed exec 0 -- "$program" job stats --switch "$control" --json >"$folder/now.json" 2>/dev/null || return 0
  if grep -q '"completed": *[1-9]' "$folder/now.json"; then mv "$folder/now.json" "$folder/leaf$1.json"; fi
}

run() { # WORDS [SWITCH that is started again]
  echo "== $1"
  bed stats --json >"$folder/before.json"
  rm -f "$folder"/leaf?.json
  bed run --timeout 180s -- "$worker" "$iterations" "$elements" atp 0 >"$folder/out" 2>&1 &
  job=$!
  # The job is at the switches only while it runs, so ask again and again, and keep the last answers.
  while kill -0 "$job" 2>/dev/null; do
    for leaf in 0 1; do ask "$leaf"; done
    sleep 0.1
    # What it completes from now on, it completes after the restart.
    if [ -n "${2:-}" ] && [ -e "$folder/$2.json" ] && [ ! -e "$folder/again" ]; then
      bed restart "$2" >"$folder/again"
      rm "$folder/$2.json"
    fi
  done
  wait "$job" || { cat "$folder/out" >&2; exit 1; }
  bed stats --json >"$folder/after.json"
  [ "$(grep -c 'all exact' "$folder/out")" = 4 ] || { cat "$folder/out" >&2; exit 1; }
  python3 - "$folder" "$iterations" "$elements" "${2:-}" <<'PYTHON'
import json, pathlib, sys
folder, iterations, elements = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
read = lambda file: json.loads((folder / file).read_text())
for leaf in ("leaf0", "leaf1"):
    assert (folder / f"{leaf}.json").exists(), f"{leaf} completed nothing"
    counters = read(leaf + ".json")["jobs"][0]["counters"]
    print(f"{leaf}: {counters['completed']} completed, {counters['flushed']} flushed")
def uplink(file):
    return {(link["name"], arc["from"]): arc["bytes"] for link in read(file)["links"] for arc in link["arcs"]
            if "spine0" in link["name"]}
before, after = uplink("before.json"), uplink("after.json")
copy = iterations * elements * 4
for (link, end), sent in after.items():
    copies = (sent - before[link, end]) / copy
    print(f"{link}, from {end}: {sent - before[link, end]} bytes, {copies:.2f} copies of the tensors")
    assert sys.argv[4] or 0.9 < copies < 1.6, "the racks' sums do not cross the uplinks once"
PYTHON
  sed -n 's/^\[0\] \(rank 0: .*\)/\1/p' "$folder/out"
}

run "no loss"
bed set link all loss=1% >/dev/null
run "1 % of all packets lost"
run "1 % of all packets lost, and leaf0 is started again" leaf0
echo "all sums exact"
