#!/usr/bin/env bash
# Two jobs with three workers each share one `thalweg switch`, every host in a network namespace of
# its own (needs root):
#   1. one job alone, aggregators for all: what reaches the server is half of what was sent. Rank 0 is
#      the server and sends nothing to itself;
#   2. both jobs, few aggregators, 1 % of all UDP packets lost at every host: they share, all sums
#      are exact;
#   3. the switch is killed: both jobs go on by their servers, all sums are exact.
# With --xdp the switch aggregates in the kernel.
# usage: two_jobs_one_switch.sh [--xdp] [iterations [elements]]
set -euo pipefail
hosts=(s a0 a1 a2 b0 b1 b2)
. "$(dirname "$0")/namespaces.sh"
xdp=
if [ "${1:-}" = --xdp ]; then xdp=1; shift; fi
iterations=${1:-60}
elements=${2:-100000}
worker=build/release/examples/atp_sum
# The secret of the switch, for it and for whoever asks it.
THALWEG_SWITCH_TOKEN=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
export THALWEG_SWITCH_TOKEN

# XDP is to see packets, not runs of them, and to be told the way.
inside hub ethtool -K s gso off tx-udp-segmentation off
inside s sysctl -qw net.ipv4.conf.tw0.forwarding=1

lose_one_percent() {
  for host in "${hosts[@]}"; do
    inside "$host" nft "add table netdev loss; add chain netdev loss in { type filter hook ingress \
      device tw0 priority 0 ; }; add rule netdev loss in ip protocol udp numgen random mod 100 < 1 counter drop"
  done
}

start_switch() { # AGGREGATORS
  cat >"$folder/switch.yaml" <<EOF
data: $(address s):7800
control: $(address s):7700
token: "$THALWEG_SWITCH_TOKEN"
aggregators: $1
EOF
  # In the driver a virtual device would send only if its other end had a program too.
  [ -z "$xdp" ] || printf 'elements: 64\nxdp: [tw0]\nxdp_generic: true\n' >>"$folder/switch.yaml"
  start switch s "$program" switch --config "$folder/switch.yaml"
  switch=$started
  wait_for switch '^data' 1
}

start_job() { # LETTER ITERATIONS
  for rank in 0 1 2; do
    start "$1$rank" "$1$rank" env THALWEG_RANK=$rank THALWEG_SIZE=3 THALWEG_STORE="$(address "${1}0"):7000" \
      THALWEG_TOKEN="$(printf %x "'$1")" THALWEG_SWITCH="$(address s):7700" "$worker" "$2" "$elements"
    ranks+=("$started")
  done
}

join_ranks() {
  for pid in "${ranks[@]}"; do
    wait "$pid" || fail "a rank failed"
  done
  ranks=()
}

statistics() { inside s "$program" job stats --switch "$(address s):7700" --json >"$folder/stats.json"; }

ranks=()
echo "== one job, aggregators for all, no loss"
start_switch 8192
start_job a "$iterations"
wait_for a0 exact $((iterations / 4))
statistics
python3 - "$folder/stats.json" "$xdp" <<'EOF'
import json, sys
job = json.load(open(sys.argv[1]))["jobs"][0]
ports = job["ports"]
if sys.argv[2]:
    assert job["counters"]["xdp-completed"] > 0, "nothing was aggregated in the kernel"
# The server is worker 0, which keeps its own gradients. Worker 2 sends as much as worker 1.
sent = 2 * ports[1]["bytes_in"]
got = ports[3]["bytes_out"]
print(f"workers sent {sent} bytes of gradients, the server got {got}: {got / sent:.3f} (a plain server: 1)")
# A half, and what a busy machine sends again for being late.
assert got / sent < 0.9, "the switch did not aggregate"
EOF
join_ranks
kill -9 "$switch"; wait "$switch" 2>/dev/null || true

echo "== two jobs, 64 aggregators, 1 % loss"
lose_one_percent
start_switch 64
start_job a $((2 * iterations))
start_job b $((2 * iterations))
wait_for a0 exact $((iterations / 4))
wait_for b0 exact $((iterations / 4))
statistics
python3 - "$folder/stats.json" <<'EOF'
import json, sys
jobs = json.load(open(sys.argv[1]))["jobs"]
assert len(jobs) == 2, "a job is over before the other has begun"
for job in jobs:
    c = job["counters"]
    print(f"job {job['job']}: " + ", ".join(f"{c[k]} {k}" for k in
          ("completed", "collision", "resent", "flushed", "partial_sums", "most_slots")))
    assert c["completed"] > 0 and c["collision"] > 0, "the jobs do not share the aggregators"
EOF
echo "== the switch is killed"
kill -9 "$switch"; wait "$switch" 2>/dev/null || true
for job in a b; do
  done=$(grep -c "iteration .* exact" "$folder/${job}0")
  echo "of $((2 * iterations)) iterations job $job had done $done"
  [ "$done" -lt $((2 * iterations)) ] || { echo "job $job was over before"; exit 1; }
done
join_ranks
tail -qn1 "$folder"/[ab][012]
[ "$(grep -l "all exact" "$folder"/[ab][012] | wc -l)" = 6 ]
echo "all sums exact"
