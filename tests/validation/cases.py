"""The networks and random flow lists on which our simulator is held against ns-3."""
import random
from collections.abc import Callable
from dataclasses import dataclass

from simulators import Flow, Network

DUMBBELL = "tests/validation/scenarios/dumbbell.yaml"
DUMBBELL_HOSTS = [f"sender{i}" for i in range(8)] + [f"receiver{i}" for i in range(8)]
LEAF_SPINE = "leaf-spine:racks=4,hosts=4,spines=2,host=10G,uplink=10G"
LEAF_SPINE_HOSTS = [f"rack{r}-host{h}" for r in range(4) for h in range(4)]
SPINES, RACK = 2, 4

# Sizes of the mixed lists: probability, least and most bytes; uniform in the logarithm within each. Half of the
# flows fit the first window, most bytes are in the large ones.
MIX = [(0.5, 2_000, 15_000), (0.3, 15_000, 200_000), (0.15, 200_000, 1_000_000), (0.05, 1_000_000, 5_000_000)]


def mixed_size(rng: random.Random) -> int:
    _, least, most = rng.choices(MIX, weights=[weight for weight, _, _ in MIX])[0]
    return int(least * (most / least) ** rng.random())


def dumbbell(seed: int) -> list[Flow]:
    """8 senders to 8 receivers through one link: 64 flows of 0.5 to 5 MB, as much as it carries."""
    rng = random.Random(seed)
    now = 0.0
    flows = []
    for number in range(64):
        size = rng.randrange(500_000, 5_000_001)
        flows.append(Flow(number % 8, 8 + number % 8, size, round(now, 3)))
        now += rng.expovariate(1 / 2200)
    return flows


def leaf_spine(seed: int) -> list[Flow]:
    """300 flows of mixed sizes between random pairs, started as a Poisson process: with a mean of about 0.2 MB
    and 25 us between them they offer each of 16 hosts 4 Gb/s."""
    rng = random.Random(seed)
    now = 0.0
    flows = []
    for _ in range(300):
        now += rng.expovariate(1 / 25)
        src, dst = rng.sample(range(16), 2)
        spine = rng.randrange(SPINES)
        path = spine if src // RACK != dst // RACK else None
        flows.append(Flow(src, dst, mixed_size(rng), round(now, 3), path))
    return flows


@dataclass(frozen=True)
class Case:
    name: str
    network: Network
    flows: Callable[[int], list[Flow]]


CASES = [
    Case("dumbbell, NewReno", Network(DUMBBELL, DUMBBELL_HOSTS, "newreno", 150_000), dumbbell),
    Case("dumbbell, DCTCP", Network(DUMBBELL, DUMBBELL_HOSTS, "dctcp", 450_000, 97_500), dumbbell),
    Case("leaf-spine, NewReno", Network(LEAF_SPINE, LEAF_SPINE_HOSTS, "newreno", 150_000), leaf_spine),
    Case("leaf-spine, DCTCP", Network(LEAF_SPINE, LEAF_SPINE_HOSTS, "dctcp", 450_000, 97_500), leaf_spine),
]
