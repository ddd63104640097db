"""The benchmarks of PyTorch programs run, and refuse what they cannot do."""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from thalweg.lab.bench import gpu  # noqa: E402
from thalweg.lab.bench.ddp import VARIANTS, summary  # noqa: E402
from thalweg.lab.bench.ranks import wait_for_ranks  # noqa: E402
from thalweg.lab.namespaces import missing  # noqa: E402


def bench(*words, name="ddp", **environment):
    return subprocess.run([sys.executable, "-m", f"thalweg.lab.bench.{name}", *words], capture_output=True, text=True,
                          timeout=200, check=False, env={**os.environ, "PYTHONPATH": str(ROOT / "python"), **environment})


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_runs_all_variants(tmp_path):
    run = bench("--steps", "1", "--loss", "0.01", "--models", "communication", "--congestion", "cubic",
                "--timeout", "150", "--json", str(tmp_path / "rows.json"))
    assert run.returncode == 0, run.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["congestion"], row["model"], row["variant"]) for row in rows] == [
        ("cubic", "communication", variant) for variant in VARIANTS]
    for row in rows:
        assert row["p50_ms"] > 0 and (row["variant"] != "gloo" or row["ratio_p50"] == 1), row
        # Some of LayerWise's transfers may happen in the previous step.
        assert row["variant"].startswith("layerwise") or row["p50_ms"] > row["limit_ms"], "faster than the link"
        assert row["compute_ms"] > 0


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_ranks_that_are_late__end_with_an_error(tmp_path):
    run = bench("--steps", "100000", "--timeout", "1", "--models", "communication")
    assert run.returncode == 1 and "rank 0 has not ended within --timeout 1 s" in run.stderr, run.stderr
    assert "Traceback" not in run.stderr


def test_wait_for_ranks__the_first_that_dies_ends_all_with_its_output(tmp_path):
    def start(code):
        return subprocess.Popen([sys.executable, "-c", code])
    ranks = [start("import time; time.sleep(100)"), start("pass"), start("raise SystemExit(3)")]
    began = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        wait_for_ranks("bench", ranks, 90, "90 s", lambda rank: f"said by {rank}")
    assert ended.value.code == "bench: rank 2 ended with 3:\nsaid by 2" and time.monotonic() - began < 60
    assert [rank.wait(10) for rank in ranks] == [-9, 0, 3]


@pytest.mark.parametrize(("words", "wanted"), [(["--loss", "1"], "--loss: 1.0; from 0 to below 1"),
                                               (["--loss", "1e-7"], "--loss: 1e-07; 0, or from 1e-06 on"),
                                               (["--timeout", "0"], "--timeout: 0.0; from 1 to below 1e+06"),
                                               (["--ranks", "1"], "--ranks: 1; from 2 to below 31"),
                                               (["--variants", "thalweg"], "gloo must be among them"),
                                               (["--congestion", "none"], "--congestion: none; ")])
def test_arguments_that_make_no_sense(words, wanted):
    run = bench(*words, THALWEG_BACKEND="0")  # PyTorch is not loaded for it
    assert run.returncode == 2 and wanted in run.stderr


def test_summary__ratios_are_gloo_over_the_variant():
    times = {"gloo": [0.2, 0.4], "thalweg": [0.1, 0.1], "thalweg-dlcp": [0.6, 0.6], "alone": [0.05]}
    rows = {row["variant"]: row for row in summary({"m": {"bytes": 1, "limit_ms": 1.0, "times": times}})}
    assert rows["thalweg"]["ratio_mean"] == 3 and rows["thalweg"]["ratio_p99"] == 4
    assert rows["thalweg-dlcp"]["ratio_p50"] == 0.5 and rows["gloo"]["mean_ms"] == 300
    assert "alone" not in rows and rows["gloo"]["compute_ms"] == 50


def test_gpu_summary__bytes_both_ways_and_ratios():
    row = gpu.summary({"device": "d", "seconds": {"copy": 0.5, "staged": 1.0, "gloo": 4.0, "thalweg": 2.0},
                       "steps": {"gloo": 0.3, "thalweg": 0.2}}, 1000)
    assert row["copy_gb_per_s"] == round(2 * 1000 * 2**20 / 0.5 / 1e9, 2) and row["staged_by_copy"] == 0.5
    assert row["thalweg_by_gloo"] == 2 and row["thalweg_step_ms"] == 200 and row["step_thalweg_by_gloo"] == 1.5


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu__without_one():
    run = bench(name="gpu")
    assert run.returncode == 2 and "there is no GPU" in run.stderr
