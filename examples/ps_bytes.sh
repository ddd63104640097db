#!/usr/bin/env bash
# Three workers push to one `thalweg ps`, every host in a network namespace of its own (needs root),
# over tcp, dlcp and atp: what reaches the server of each byte that workers push. Over atp once more
# with a switch that is killed in the middle. All values are compared with the serial ones.
# usage: ps_bytes.sh [steps [elements]]
set -euo pipefail
hosts=(p s w0 w1 w2)
. "$(dirname "$0")/namespaces.sh"
steps=${1:-20}
elements=${2:-1000000}
worker=build/release/examples/ps_steps

received() { inside p cat /sys/class/net/tw0/statistics/rx_bytes; }

run() { # NAME TRANSPORT [kill]
  printf 'listen: %s:7900\nworkers: 3\nrate: 1\ntransport: %s\n' "$(address p)" "$2" >"$folder/ps.yaml"
  if [ "$2" = atp ]; then
    printf 'data: %s:7800\ncontrol: %s:7700\n' "$(address s)" "$(address s)" >"$folder/switch.yaml"
    start switch s "$program" switch --config "$folder/switch.yaml"
    switch=$started
    wait_for switch '^data' 1
    # The secret that the switch has drawn.
    wait_for switch '^token' 1
    printf 'switch: %s:7700\ntoken: "%s"\n' "$(address s)" "$(awk '/^token/ { print $2 }' "$folder/switch")" >>"$folder/ps.yaml"
  fi
  start ps p "$program" ps --config "$folder/ps.yaml"
  server=$started
  wait_for ps '^listen' 1
  workers=()
  before=$(received)
  for w in 0 1 2; do
    start "w$w" "w$w" "$worker" "$(address p):7900" "$w" 3 "$steps" "$elements"
    workers+=("$started")
  done
  if [ "${3:-}" = kill ]; then
    wait_for w0 exact $((steps / 2))
    kill -9 "$switch"
    wait "$switch" 2>/dev/null || true
  fi
  for pid in "${workers[@]}"; do
    wait "$pid" || fail "a worker failed"
  done
  after=$(received)
  kill "$server"
  wait "$server"
  if [ "$2" = atp ] && [ "${3:-}" != kill ]; then kill "$switch"; wait "$switch"; fi
  # Every worker's first value goes over TCP; what comes back for values are acknowledgements.
  awk -v name="$1" -v got=$((after - before)) -v first=$((3 * 4 * elements)) -v pushed=$((3 * 4 * elements * steps)) \
    '/^push_bytes/ { own = $2 } END { printf "%s: workers pushed %d bytes; the server got %d (%.3f); its interface received %.3f a byte, all exact\n",
      name, pushed, own, own / pushed, (got - first) / pushed }' "$folder/ps"
}

run tcp tcp
run dlcp dlcp
run atp atp
run "atp, switch killed" atp kill
