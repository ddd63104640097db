"""`thalweg probe` under our launcher."""
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "build/release/thalweg"


def test_probe_writes_a_topology_that_plans_take(thalweg, tmp_path):
    out = tmp_path / "measured.yaml"
    measured = thalweg("run", "-n", 3, "--no-prefix", "--", PROGRAM, "probe", "--each", "5ms", "--json", "-o",
                       out).json()
    assert measured["ranks"] == 3 and len(measured["samples"]) == 6
    assert 0 <= measured["confidence"] <= 1
    assert all(s["rate_bps"] > 0 and s["round_trip_us"] > 0 for s in measured["samples"])
    best = thalweg("plan", "best", "--topology", out, "--size", "1MiB")
    assert best.code == 0, best.err


def test_a_bad_duration_is_named(thalweg):
    done = thalweg("probe", "--each", "1h")
    assert done.code == 2 and "1h" in done.err
