#!/bin/bash
# The rows of ATP beside Gloo: `thalweg bench step` on testbeds. Needs root and 16 cores; about 12 minutes.
# Prints a table for each network. Usage: bench/step/atp.sh [path of thalweg] [steps]
set -euo pipefail
thalweg=${1:-build/release/thalweg}
steps=${2:-20}
common=(--model resnet18 --scale 0.0856 --no-simulation --steps "$steps" --libraries tcp,atp --against gloo)

one=single-switch:hosts=8,host=100M,delay=100us
two=leaf-spine:racks=2,hosts=4,spines=2,host=200M,uplink=100M,delay=100us
# --loss is that of a packet between two hosts, over two links: 0.25 % and 1 % a link.
for loss in 0 0.5% 2%; do
  echo "== 8 hosts at 100 Mb/s, one switch, loss between two hosts: $loss (2 minutes)"
  arguments=(--testbed "$one" --aggregate switch0)
  [ "$loss" = 0 ] || arguments+=(--loss "$loss")
  "$thalweg" bench step "${arguments[@]}" "${common[@]}"
done
echo "== two racks of 4 hosts at 200 Mb/s with two uplinks of 100 Mb/s, both leaves aggregate (2 minutes)"
"$thalweg" bench step --testbed "$two" --aggregate leaf0,leaf1 "${common[@]}"

echo "== two jobs of 4 hosts on one switch, each alone and both at once (4 minutes)"
bed=atp-two-jobs
"$thalweg" testbed up "$one" --name "$bed" --aggregate switch0
trap '"$thalweg" testbed down --name "$bed"' EXIT
job() {
  "$thalweg" testbed run --name "$bed" --hosts "$1" -- "$thalweg" bench step --model resnet18 \
    --scale 0.0856 --no-simulation --steps "$steps" --libraries atp
}
job 0-3
job 4-7
job 0-3 > "/tmp/$bed-first.txt" &
job 4-7
wait $!
cat "/tmp/$bed-first.txt"
