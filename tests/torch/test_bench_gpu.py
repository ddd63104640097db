"""`thalweg bench gpu` without a GPU: its flags, what it says, its tables, and its ranks with tensors of the host."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from thalweg.lab.bench import gpu_allreduce as bench  # noqa: E402
from thalweg.lab.bench.gpu_allreduce_rank import COPIES, HOST, shape_of_turn  # noqa: E402
from thalweg.lab.bench.mps import Mps  # noqa: E402

SECONDS = 200


def program(*words, **environment):
    return subprocess.run([ROOT / "build/release/thalweg", "bench", "gpu", *words], capture_output=True, text=True,
                          timeout=SECONDS, check=False, env={**os.environ, "THALWEG_PYTHON": sys.executable, **environment})


@pytest.mark.parametrize(("words", "wanted"), [
    (["--ranks", "1"], "--ranks: 1; numbers from 2 to 16 are allowed"),
    (["--ranks", "2,x"], "--ranks: x; numbers from 2 to 16 are allowed"),
    (["--sizes", "1KiB,3"], "--sizes: 3; multiples of 4 bytes up to 1GiB are allowed, such as 1KiB"),
    (["--sizes", "2GiB"], "--sizes: 2GiB; multiples of 4 bytes"),
    (["--sizes", "4XiB"], "--sizes: 4XiB; multiples of 4 bytes"),
    (["--against", "mpi"], "--against: mpi; nccl, gloo, nccl+plugin, nccl+collnet, each once, or none is allowed"),
    (["--against", "nccl,nccl"], "--against: nccl,nccl; nccl, gloo, nccl+plugin, nccl+collnet, each once, or none"),
    (["--device", "tpu"], "--device: tpu; cuda and cpu are allowed"),
    (["--device", "cpu"], "--against: nccl; with --device cpu only gloo and none are allowed"),
    (["--against", "nccl+collnet"], "--against: nccl+collnet; it needs a switch that sums: --testbed"),
    (["--against", "nccl+plugin", "--plugin", "/no/libnccl-net-thalweg.so"],
     "--plugin: /no/libnccl-net-thalweg.so; the path of a libnccl-net-thalweg.so is allowed"),
    (["--loss", "1%"], "--loss: it needs --testbed; loopback loses nothing"),
    (["--loss", "51%"], "--loss: 51%; a percentage from 0% to 50% is allowed, such as 0.5%"),
    (["--rounds", "0"], "--rounds: 0; from 1 to 1000 is allowed"),
    (["--turn", "nan"], "--turn: nan; from 0.001 to 60 is allowed"),
    (["--out", "/no/such/folder/x.json"], "--out: /no/such/folder/x.json; there is no folder /no/such/folder"),
    (["--rond", "1"], "'--rond' is not one of its options; did you mean '--rounds'?")])
def test_flags__the_error_names_what_is_allowed(words, wanted, capsys):
    assert bench.main([*words, "--json"]) == 2
    said = capsys.readouterr()
    assert wanted in said.err
    answer = json.loads(said.out)
    assert answer["exit_code"] == 2 and wanted in answer["error"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu__one_line_and_exit_code_2():
    run = program()
    assert run.returncode == 2 and run.stdout == ""
    assert run.stderr.splitlines() == ["thalweg bench gpu: there is no GPU that PyTorch can use; nothing was measured "
                                       "(--device cpu measures tensors of the host)"]


def test_help__comes_from_the_program():
    run = program("--help")
    assert run.returncode == 0 and "--against" in run.stdout and "docs" not in run.stderr


def test_tensors_of_the_host__all_libraries_have_times(tmp_path):
    out = tmp_path / "all.json"
    run = program("--device", "cpu", "--against", "gloo", "--ranks", "2", "--sizes", "1KiB,1MiB", "--rounds", "2", "--turn",
                  "0.01", "--out", str(out))
    assert run.returncode == 0, run.stderr
    report = json.loads(out.read_text())
    assert [(row["ranks"], row["bytes"]) for row in report["rows"]] == [(2, 1 << 10), (2, 1 << 20)]
    for row in report["rows"]:
        for name in ("thalweg", "gloo", HOST, COPIES):
            assert 0 < row[name]["p50_us"] <= row[name]["p99_us"] and row[name]["samples"] >= 6, (name, row)
        assert row["ratio_p50"].keys() == {"gloo"} and "phases_us" not in row
    assert "1 KiB" in run.stdout and "1 MiB" in run.stdout and "NCCL" not in run.stdout


def test_steps_of_a_model__beside_those_without_communication():
    run = program("--device", "cpu", "--against", "gloo", "--ranks", "2", "--sizes", "1KiB", "--rounds", "1", "--turn", "0.01",
                  "--model", "digits-cnn", "--json")
    assert run.returncode == 0, run.stderr
    (row,) = json.loads(run.stdout)["steps"]
    assert row["model"] == "digits-cnn" and row["ratio_p50"].keys() == {"gloo"}
    assert all(row[name]["samples"] == 6 and row[name]["p50_ms"] > 0 for name in ("alone", "thalweg", "gloo"))
    assert "gloo" in bench.step_lines(row)[-1]


def test_model__unknown_or_without_torchvision():
    run = program("--device", "cpu", "--against", "none", "--model", "resnet49")
    assert run.returncode == 2 and "--model: resnet49; alexnet, " in run.stderr


needs_testbed = pytest.mark.skipif(os.geteuid() != 0 or not os.access("/dev/net/tun", os.W_OK),
                                   reason="a testbed needs root and /dev/net/tun")


@needs_testbed
def test_testbed__ranks_are_on_its_hosts_and_its_links_set_the_time():
    run = program("--device", "cpu", "--against", "gloo", "--ranks", "2", "--sizes", "64KiB", "--rounds", "1", "--turn", "0.01",
                  "--testbed", "single-switch:hosts=2,host=20M,delay=100us", "--loss", "0.1%", "--json")
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["testbed"].startswith("single-switch") and report["loss"] == 0.001
    for name in ("thalweg", "gloo"):
        assert report["rows"][0][name]["p50_us"] > 1e6 * 8 * 65536 / 20e6, report  # the time of the bytes at 20 Mb/s


@needs_testbed
def test_testbed__fewer_hosts_than_ranks():
    run = program("--device", "cpu", "--against", "none", "--ranks", "4", "--testbed", "single-switch:hosts=2,host=20M")
    assert run.returncode == 2 and "--ranks: 4; the testbed has 2 hosts" in run.stderr


def test_plugins__have_ranks_of_their_own(tmp_path):
    library = tmp_path / bench.LIBRARY
    library.write_text("")
    arguments = bench.parse(["--against", "nccl,gloo,nccl+plugin,nccl+collnet", "--plugin", str(library), "--testbed", "x"])
    sets = bench.casts(arguments)
    assert [libraries for libraries, _ in sets] == [["thalweg", "nccl", "gloo"], ["nccl+plugin"], ["nccl+collnet"]]
    assert [environment["NCCL_NET_PLUGIN"] for _, environment in sets] == ["none", "thalweg", "thalweg"]
    assert [environment.get("NCCL_COLLNET_ENABLE") for _, environment in sets] == [None, "0", "1"]
    with_plugin = results(40.0, 60.0) | {"nccl+plugin": results(1, 30.0)["nccl"]}
    row = bench.row_of(2, 1 << 20, with_plugin)
    assert row["nccl_ratio_p50"] == {"nccl+plugin": 2.0}
    assert bench.plugin_lines([row]) == ["NCCL / NCCL with the plugin (of p99): 1 MiB 2.00 (2.00)"]


def test_ranks_that_are_late__end_with_an_error():
    run = program("--device", "cpu", "--against", "none", "--ranks", "2", "--timeout", "1")
    assert run.returncode == 1 and "has not ended within --timeout 1 s" in run.stderr and "Traceback" not in run.stderr


def results(thalweg_us, nccl_us, phases=None):
    def times(us):
        return {"calls": 2, "samples": 4, "times_s": [us * 1e-6] * 3 + [2 * us * 1e-6]}
    ours = times(thalweg_us) | ({"phases": phases} if phases else {})
    return {"thalweg": ours, "nccl": times(nccl_us), HOST: times(10), COPIES: times(20)}


def test_row__ratios_rates_and_phases():
    phases = {"calls": 10, "parts": 10, "enqueue_ns": 10_000, "arrive_ns": 20_000, "start_ns": 0, "operation_ns": 100_000,
              "back_ns": 30_000}
    row = bench.row_of(2, 1 << 20, results(40.0, 60.0, phases))
    assert row["thalweg"] == {"p50_us": 40.0, "p99_us": 80.0, "mean_us": 50.0, "gb_per_s": 26.214, "samples": 4, "calls_per_sample": 2}
    assert row["ratio_p50"] == {"nccl": 1.5} and row["ratio_p99"] == {"nccl": 1.5}
    assert row["phases_us"] == {"enqueue": 1, "arrive": 2, "start": 0, "operation": 10, "back": 3}
    head, line = bench.table([row])
    assert head.split() == "size Thalweg p99 GB/s host copies NCCL p99 GB/s ratio of p99".split()
    assert line.split() == "1 MiB 40.0 80.0 26.21 10.0 20.0 60.0 120.0 17.48 1.50 1.50".split()
    assert bench.phase_lines([row])[-1].split() == "1 MiB 1.0 2.0 0.0 10.0 3.0 24.0".split()


def test_row__several_pieces_overlap_so_there_is_no_rest():
    phases = {"calls": 10, "parts": 40, "enqueue_ns": 0, "arrive_ns": 0, "start_ns": 0, "operation_ns": 10_000_000,
              "back_ns": 0}
    row = bench.row_of(2, 16 << 20, results(40.0, 60.0, phases))
    assert row["parts_per_call"] == 4 and len(bench.phase_lines([row])[-1].split()) == 7


@pytest.mark.parametrize(("call_us", "calls", "samples"), [(10, 20, 200), (100, 5, 200), (400, 1, 200), (5000, 1, 20),
                                                           (500_000, 1, 3)])
def test_shape_of_a_turn(call_us, calls, samples):
    assert shape_of_turn(call_us * 1e-6 * 0.999, 0.1) == (calls, samples)


def test_mps__says_why_it_does_not_run(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with Mps() as mps:
        assert mps.environment == {} and mps.problem == "there is no nvidia-cuda-mps-control"
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text("#!/bin/sh\necho no permission >&2\nexit 3\n")
    control.chmod(0o755)
    with Mps() as mps:
        assert mps.environment == {} and mps.problem == "nvidia-cuda-mps-control -d ended with 3: no permission"
    with Mps(wanted=False) as mps:
        assert mps.environment == {} and mps.problem == "not asked for"


def test_mps__runs_in_folders_of_its_own_and_ends(monkeypatch, tmp_path):
    """A program in its place notes what it was asked; Python, which looks whether a process can use it, is replaced, too."""
    log = tmp_path / "log"
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(f'#!/bin/sh\nif [ "$1" = -d ]; then echo start "$CUDA_MPS_PIPE_DIRECTORY" >>{log}; '
                       f'else read -r word; echo "$word" >>{log}; fi\n')
    probe = tmp_path / "python"
    probe.write_text("#!/bin/sh\nexit 0\n")
    for path in (control, probe):
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "executable", str(probe))
    with Mps() as mps:
        folder = Path(mps.environment["CUDA_MPS_PIPE_DIRECTORY"])
        assert mps.problem is None and folder.is_dir() and folder != Path(mps.environment["CUDA_MPS_LOG_DIRECTORY"])
    assert log.read_text().splitlines() == [f"start {folder}", "quit"] and not folder.exists()
