#!/bin/bash
# How much faster one simulation is on several threads, and whether its result stays the same. Takes about ten minutes on 16 cores:
#   bench/sim/threads.sh build/release/thalweg
set -eu
thalweg=${1:-build/release/thalweg}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$thalweg" bench sim --no-ns3 --threads 1
for threads in 2 4 8 16; do
  "$thalweg" bench sim --no-ns3 --threads "$threads" --until 200us \
    --topology leaf-spine:racks=64,hosts=16,spines=8,host=100G,uplink=200G
done
for threads in 1 2 4 8 16; do
  echo "incast-144 on $threads threads"
  time "$thalweg" sim run incast-144 --threads "$threads" --json > "$folder/$threads.json"
  cmp "$folder/1.json" "$folder/$threads.json"
done
