# For the examples in bash, sourced with `hosts` set: each host is a network namespace of that name (needs
# root), with the device tw0 at a bridge that joins all. Everything is in namespaces of the script's own: its
# processes, and the networks, end with it however it ends. Files go to $folder, which ends with it too.
if [ "${1:-}" != --inside ]; then
  exec unshare --mount --pid --fork --kill-child --mount-proc "$0" --inside "$@"
fi
shift
trap 'exit 130' INT TERM
mkdir -p /run/netns
mount -t tmpfs none /run/netns
folder=/run/netns/files
mkdir "$folder"
cd "$(dirname "$0")/.."
program=build/release/thalweg

address() { # HOST
  for i in "${!hosts[@]}"; do [ "${hosts[$i]}" = "$1" ] && echo "10.79.0.$((i + 1))"; done
}
inside() { # HOST COMMAND…
  ip netns exec "$1" "${@:2}"
}

ip netns add hub
inside hub ip link add hub type bridge
inside hub ip link set hub up
for host in "${hosts[@]}"; do
  ip netns add "$host"
  ip link add "$host" netns hub type veth peer name tw0 netns "$host"
  inside hub ip link set "$host" master hub up
  inside "$host" ip link set lo up
  inside "$host" ip addr add "$(address "$host")/24" dev tw0
  inside "$host" ip link set tw0 up
  # Cuts runs of packets, which would be lost as one, into packets.
  inside "$host" tc qdisc add dev tw0 root tbf rate 2gbit burst 8kb limit 10mb
done

# In the background; its number is in `started`, its output in $folder/FILE and FILE.err.
start() { # FILE HOST COMMAND…
  : >"$folder/$1"
  # Not by inside(), whose process would be the shell's.
  ip netns exec "$2" "${@:3}" >"$folder/$1" 2>"$folder/$1.err" &
  started=$!
}

wait_for() { # FILE PATTERN COUNT
  for _ in $(seq 1200); do
    [ "$(grep -c "$2" "$folder/$1")" -ge "$3" ] && return
    sleep 0.05
  done
  fail "no '$2' in $1"
}

fail() { # WORDS
  echo "$1" >&2
  tail -n +1 "$folder"/* >&2
  exit 1
}
