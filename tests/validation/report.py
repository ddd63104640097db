#!/usr/bin/env python3
"""What the last `make validate` found: a table on standard output, and build/validation/fct.json and fct.svg."""
import json
import subprocess
import sys

from cases import CASES
from compare import MEDIAN_WITHIN, P99_WITHIN, percentile, result_path
from simulators import ROOT, RESULTS

POINTS = 400  # of a curve
SERIES = {"ours": "Thalweg", "ns3": "ns-3", "stock": "ns-3, stock, {} seeds"}


def results_of(name: str) -> dict | None:
    path = result_path(name)
    return json.loads(path.read_text()) if path.exists() else None


def summary(result: dict) -> dict:
    times = result["fct_us"]
    return {"flows": len(times), "median_us": percentile(times, 50), "p99_us": percentile(times, 99),
            **{key: result[key] for key in ("drops", "retransmissions", "timeouts")}}


def compared(kept: dict) -> dict:
    sides = {key: summary(value) for key, value in kept["results"].items()}
    ours, theirs = sides["ours"], sides["ns3"]
    return {"name": kept["name"], "seeds": kept["seeds"], **sides,
            "median_difference": ours["median_us"] / theirs["median_us"] - 1,
            "p99_difference": ours["p99_us"] / theirs["p99_us"] - 1}


def curve(name: str, times: list[float], reference: bool, color: int) -> dict:
    shares = [i / POINTS for i in range(POINTS + 1)]
    return {"name": name, "x": [percentile(times, 100 * share) / 1000 for share in shares], "y": shares,
            "reference": reference, "color": color}


def panel(kept: dict, stock: dict | None) -> dict:
    series = [curve(SERIES["ours"], kept["results"]["ours"]["fct_us"], False, 0),
              curve(SERIES["ns3"], kept["results"]["ns3"]["fct_us"], True, 1)]
    if stock:
        series.append(curve(SERIES["stock"].format(stock["seeds"]), stock["results"]["ns3"]["fct_us"], True, 3))
    return {"kind": "lines", "title": kept["name"], "x_label": "flow completion time, ms", "log_x": True,
            "y_label": "share of flows", "y_range": [0, 1], "series": series}


def main() -> int:
    found = [(case.name, results_of(case.name)) for case in CASES]
    if any(kept is None for _, kept in found):
        print("report.py: no results in build/validation; `make validate` makes them", file=sys.stderr)
        return 2
    causes = [results_of(name) for name in ("all mended", "without stale-guesses", "without raising-cut",
                                            "without burst-after-recovery")]
    stocks = {name: results_of(f"{name}, stock") for name, _ in found}
    rows = [compared(kept) for kept in [kept for _, kept in found] + [*stocks.values(), *causes] if kept]
    (RESULTS / "fct.json").write_text(json.dumps(rows, indent=1) + "\n")
    figure = {"title": "Flow completion times: Thalweg and ns-3", "columns": 2,
              "panels": [panel(kept, stocks[name]) for name, kept in found]}
    request = {"figures": [{"path": str(RESULTS / "fct.svg"), "figure": figure},
                           {"path": str(RESULTS / "fct.png"), "figure": figure}]}
    subprocess.run([sys.executable, ROOT / "python/thalweg/lab/figures/draw.py"], input=json.dumps(request), text=True,
                   check=True)
    print(f"{'':34}{'flows':>6}  {'median: ours':>13}{'ns-3':>9}{'':>8}  {'p99: ours':>11}{'ns-3':>9}{'':>8}   (ms)")
    for row in rows:
        ours, theirs = row["ours"], row["ns3"]
        print(f"{row['name']:34}{ours['flows']:>6}  {ours['median_us'] / 1000:13.3f}{theirs['median_us'] / 1000:9.3f}"
              f"{row['median_difference']:+8.1%}  {ours['p99_us'] / 1000:11.3f}{theirs['p99_us'] / 1000:9.3f}"
              f"{row['p99_difference']:+8.1%}")
    print(f"Asked of the first four: median within {MEDIAN_WITHIN:.0%}, p99 within {P99_WITHIN:.0%}. "
          "Figure: build/validation/fct.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
