#!/usr/bin/env python3
"""Writes the flow lists of tests/validation/scenarios, the same ones every time.

    tests/validation/make_flows.py [FOLDER [SEED]]

A line is `src dst bytes start_us [spine]`: a flow of that many payload bytes from host src to host
dst, started start_us microseconds after time 0, over the spine of that number. The lists are kept
in the repository (seed 0); this script says how they came about, and makes more of each kind.
"""
import random
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "scenarios"

# Sizes of the mixed lists: probability, least and most bytes; uniform in the logarithm within each.
# Half of the flows fit the first window, most bytes are in the large ones.
MIX = [(0.5, 2_000, 15_000), (0.3, 15_000, 200_000), (0.15, 200_000, 1_000_000),
       (0.05, 1_000_000, 5_000_000)]


def mixed_size(rng: random.Random) -> int:
    _, least, most = rng.choices(MIX, weights=[weight for weight, _, _ in MIX])[0]
    return int(least * (most / least) ** rng.random())


def dumbbell(seed: int) -> list[str]:
    """8 senders to 8 receivers through one link: 64 flows of 0.5 to 5 MB, as much as it carries."""
    rng = random.Random(seed)
    now = 0.0
    lines = []
    for flow in range(64):
        size = rng.randrange(500_000, 5_000_001)
        lines.append(f"{flow % 8} {8 + flow % 8} {size} {now:.3f}")
        now += rng.expovariate(1 / 2200)
    return lines


def leaf_spine(seed: int, count: int, hosts: int, spines: int, gap_us: float) -> list[str]:
    """Flows between random pairs, started as a Poisson process."""
    rng = random.Random(seed)
    now = 0.0
    lines = []
    for _ in range(count):
        now += rng.expovariate(1 / gap_us)
        source, target = rng.sample(range(hosts), 2)
        lines.append(f"{source} {target} {mixed_size(rng)} {now:.3f} {rng.randrange(spines)}")
    return lines


def permutation(seed: int, hosts: int, spines: int) -> list[str]:
    """Every host sends 1 to 10 MB to one other and receives from one other, all at time 0."""
    rng = random.Random(seed)
    order = rng.sample(range(hosts), hosts)
    lines = []
    for place, source in enumerate(order):
        size = rng.randrange(1_000_000, 10_000_001)
        lines.append(f"{source} {order[(place + 1) % hosts]} {size} 0 {rng.randrange(spines)}")
    return lines


# The mix has a mean of about 0.2 MB: 300 flows 25 us apart offer each of 16 hosts 4 Gb/s.
def make_lists(seed: int) -> dict[str, tuple[str, list[str]]]:
    return {
        "dumbbell-newreno": (dumbbell.__doc__, dumbbell(10 * seed + 1)),
        "dumbbell-dctcp": (dumbbell.__doc__, dumbbell(10 * seed + 2)),
        "leaf-spine-newreno": (leaf_spine.__doc__, leaf_spine(10 * seed + 3, 300, 16, 2, 25)),
        "leaf-spine-dctcp": (leaf_spine.__doc__, leaf_spine(10 * seed + 4, 300, 16, 2, 25)),
        "bench": (permutation.__doc__, permutation(10 * seed + 5, 144, 4)),
    }


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    folder.mkdir(parents=True, exist_ok=True)
    for name, (what, lines) in make_lists(seed).items():
        columns = "src dst bytes start_us" + (" spine" if len(lines[0].split()) == 5 else "")
        head = [f"# {what}", f"# From tests/validation/make_flows.py, seed {seed}.", f"# {columns}"]
        (folder / f"{name}.flows").write_text("\n".join(head + lines) + "\n")


if __name__ == "__main__":
    main()
