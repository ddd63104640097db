"""Completion times of both simulators over several seeds, pooled, and what `make validate` keeps of them."""
import json
from dataclasses import dataclass
from pathlib import Path

from cases import Case
from simulators import RESULTS, Outcome, run_ns3, run_ours

MEDIAN_WITHIN, P99_WITHIN = 0.05, 0.15


def percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@dataclass
class Pooled:
    fct_us: list[float]
    retransmissions: int
    timeouts: int
    drops: int

    @classmethod
    def of(cls, outcomes: list[Outcome]) -> "Pooled":
        return cls(fct_us=[time for outcome in outcomes for time in outcome.fct_us],
                   retransmissions=sum(outcome.retransmissions for outcome in outcomes),
                   timeouts=sum(outcome.timeouts for outcome in outcomes),
                   drops=sum(outcome.drops for outcome in outcomes))

    def difference(self, other: "Pooled", percent: float) -> float:
        """How much larger our percentile is, as a fraction of the other's."""
        return percentile(self.fct_us, percent) / percentile(other.fct_us, percent) - 1


def ours(program: Path, case: Case, seeds: range) -> Pooled:
    return Pooled.of([run_ours(program, case.network, case.flows(seed)) for seed in seeds])


def ns3(peer: Path, case: Case, seeds: range, *options: str) -> Pooled:
    return Pooled.of([run_ns3(peer, case.network, case.flows(seed), *options) for seed in seeds])


def result_path(name: str) -> Path:
    return RESULTS / f"{name.replace(', ', '-').replace(' ', '-').lower()}.json"


def keep(name: str, seeds: range, **results: Pooled) -> None:
    """For tests/validation/report.py."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    content = {"name": name, "seeds": len(seeds), "results": {key: vars(value) for key, value in results.items()}}
    result_path(name).write_text(json.dumps(content))
