"""`thalweg run`: ranks on this host, and over a command that stands in for ssh."""
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from store_client import Store

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/thalweg"
NAMES = ["THALWEG_RANK", "THALWEG_SIZE", "THALWEG_LOCAL_RANK", "THALWEG_LOCAL_SIZE", "THALWEG_STORE",
         "THALWEG_STORE_BY", "THALWEG_TOKEN", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
         "MASTER_ADDR", "MASTER_PORT"]
SHOW = f"import json, os; print(json.dumps({{n: os.environ.get(n) for n in {NAMES} + ['EXTRA', 'FAKE_HOST']}}))"


@pytest.fixture
def fake_ssh(tmp_path):
    """Options for two hosts that are both this machine."""
    script = tmp_path / "fake-ssh"
    script.write_text('#!/bin/sh\nexport FAKE_HOST="$1"\nshift\nexec sh -c "$*"\n')
    script.chmod(0o755)
    return ["--ssh", script, "--address", "127.0.0.1", "--hosts", "one:2,me@two"]


def start(*arguments, **options):
    return subprocess.Popen([PROGRAM, "run", *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **options)


def python(code):
    return ["--", sys.executable, "-u", "-c", textwrap.dedent(code)]


def by_rank(output):
    """The lines of each rank, without their prefix."""
    ranks = {}
    for line in output.splitlines():
        prefix, _, text = line.partition("] ")
        ranks.setdefault(int(prefix.removeprefix("[")), []).append(text)
    return ranks


def wait_until(holds, seconds=30):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def pids_in(folder, count):
    """Waits until `count` processes have written their ids to the folder, and returns the ids."""
    wait_until(lambda: len([f for f in folder.iterdir() if f.read_text().endswith("\n")]) == count)
    return [int(f.read_text()) for f in folder.iterdir()]


def sleepers(folder):
    """The command of a rank that writes its process id and that of a child to the folder, and sleeps."""
    folder.mkdir()
    return ["--", "sh", "-c", f"sleep 300 & echo $! > {folder}/$RANK.child; echo $$ > {folder}/$RANK; wait"]


def test_environment_of_ranks(thalweg):
    done = thalweg("run", "-n", 3, "-x", "EXTRA=a b", *python(SHOW))
    assert done.code == 0, done.err
    ranks = {r: json.loads(lines[0]) for r, lines in by_rank(done.out).items()}
    assert sorted(ranks) == [0, 1, 2]
    for rank, seen in ranks.items():
        assert seen["THALWEG_RANK"] == seen["RANK"] == seen["LOCAL_RANK"] == str(rank)
        assert seen["THALWEG_SIZE"] == seen["WORLD_SIZE"] == seen["LOCAL_WORLD_SIZE"] == "3"
        assert seen["THALWEG_LOCAL_RANK"] == str(rank) and seen["THALWEG_LOCAL_SIZE"] == "3"
        assert seen["THALWEG_STORE_BY"] == "launcher" and seen["MASTER_ADDR"] == "127.0.0.1"
        assert seen["EXTRA"] == "a b"
        for same in ("THALWEG_STORE", "THALWEG_TOKEN", "MASTER_PORT"):
            assert seen[same] == ranks[0][same]
    assert len(ranks[0]["THALWEG_TOKEN"]) == 16


def test_ranks_meet_in_the_store(thalweg):
    """Rank 0 sets a key for every other rank, with the protocol that store_message.h documents."""
    code = f"""
        import os, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from store_client import Store
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = Store(os.environ["THALWEG_STORE"], int(os.environ["THALWEG_TOKEN"], 16))
        if rank == 0:
            for other in range(1, size):
                store.set(f"for {{other}}", f"hello {{other}}".encode())
        else:
            print(store.get(f"for {{rank}}", 20_000).decode())
        if store.add("done", 1) == size:
            store.set("all done", b"")
        store.get("all done", 20_000)
    """
    done = thalweg("run", "-n", 4, *python(code))
    assert done.code == 0, done.err
    assert by_rank(done.out) == {r: [f"hello {r}"] for r in (1, 2, 3)}


def test_store_refuses_another_token():
    process = start("-n", 1, "--no-prefix", *python("""
        import os, sys
        print(os.environ["THALWEG_STORE"], flush=True)
        sys.stdin.read()
        import time; time.sleep(300)
    """))
    address = process.stdout.readline().strip()
    with pytest.raises(ConnectionError, match="refused: 1"):
        Store(address, 12345)
    process.terminate()
    process.communicate(timeout=20)


def test_output_by_lines_to_the_stream_it_came_from(thalweg):
    done = thalweg("run", "-n", 2, "--", "sh", "-c", "printf 'a\\nb'; printf 'c\\n' >&2")
    assert by_rank(done.out) == {0: ["a", "b"], 1: ["a", "b"]}
    assert by_rank(done.err) == {0: ["c"], 1: ["c"]}


def test_no_prefix(thalweg):
    done = thalweg("run", "-n", 2, "--no-prefix", "printf", "x")
    assert (done.code, done.out, done.err) == (0, "xx", "")


def test_much_output_is_all_there(thalweg):
    done = thalweg("run", "-n", 2, *python("print('x' * 200_000); print('y' * 50, end='')"))
    assert done.code == 0
    lines = by_rank(done.out)
    for rank in (0, 1):
        assert "".join(lines[rank]) == "x" * 200_000 + "y" * 50


@pytest.mark.parametrize("words", [["echo", "--json", "-n", "7"], ["--", "echo", "--json", "-n", "7"]])
def test_options_of_the_program_are_its_own(thalweg, words):
    assert thalweg("run", "-n", 1, *words).out == "[0] --json -n 7\n"


def test_first_failure_ends_the_others(thalweg, tmp_path):
    folder = tmp_path / "pids"
    command = sleepers(folder)
    command[-1] = f"if [ $RANK = 1 ]; then while [ $(ls {folder} | wc -l) -lt 4 ]; do sleep 0.02; done; exit 7; fi; " \
        + command[-1]
    started = time.monotonic()
    done = thalweg("run", "-n", 3, *command)
    assert done.code == 7
    assert "rank 1 (process " in done.err and "ended with exit code 7; ending the others" in done.err
    assert time.monotonic() - started < 20
    assert all(gone(pid) for pid in pids_in(folder, 4))


def test_signal_that_ends_a_rank(thalweg):
    done = thalweg("run", "-n", 2, "--", "sh", "-c", "[ $RANK = 1 ] && kill -9 $$; sleep 300")
    assert done.code == 128 + 9
    assert "rank 1" in done.err and "signal 9 (Killed)" in done.err


def test_deaf_rank_is_killed_after_the_grace(thalweg, tmp_path):
    started = time.monotonic()
    done = thalweg("run", "-n", 2, "--grace", "300ms", *python(f"""
        import os, pathlib, signal, sys, time
        deaf = pathlib.Path("{tmp_path}/deaf")
        if os.environ["RANK"] == "0":
            while not deaf.exists():
                time.sleep(0.01)
            sys.exit(3)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        deaf.touch()
        time.sleep(300)
    """))
    assert done.code == 3
    assert 0.3 < time.monotonic() - started < 20


def test_what_a_rank_leaves_behind_ends_with_it(thalweg, tmp_path):
    done = thalweg("run", "-n", 1, "--", "sh", "-c", f"sleep 300 & echo $! > {tmp_path}/child")
    assert done.code == 0
    assert gone(int((tmp_path / "child").read_text()))


def test_keep_going(thalweg):
    done = thalweg("run", "-n", 3, "--keep-going", "--", "sh", "-c",
                   "[ $RANK = 1 ] && exit 5; sleep 0.5; echo alive")
    assert done.code == 5
    assert "rank 1" in done.err and "the others go on" in done.err
    assert by_rank(done.out) == {0: ["alive"], 2: ["alive"]}


def test_timeout(thalweg):
    started = time.monotonic()
    done = thalweg("run", "-n", 2, "--timeout", "300ms", "sleep", "300")
    assert done.code == 124
    assert "not done after 300 ms" in done.err
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_ranks(number):
    process = start("-n", 2, *python(f"""
        import signal, sys, time
        def end(*_):
            print("got it")
            sys.exit(0)
        signal.signal({int(number)}, end)
        print("ready")
        time.sleep(300)
    """))
    assert sorted(process.stdout.readline() for _ in range(2)) == ["[0] ready\n", "[1] ready\n"]
    process.send_signal(number)
    out, _ = process.communicate(timeout=20)
    assert sorted(out.splitlines()) == ["[0] got it", "[1] got it"]
    assert process.returncode == 128 + number


@pytest.mark.parametrize("over_ssh", [False, True])
def test_killed_launcher_leaves_no_process(tmp_path, fake_ssh, over_ssh):
    folder = tmp_path / "pids"
    where, ranks = (fake_ssh, 3) if over_ssh else (["-n", 2], 2)
    process = start(*where, *sleepers(folder))
    pids = pids_in(folder, 2 * ranks)
    assert not any(gone(pid) for pid in pids)
    process.kill()
    process.wait(10)
    wait_until(lambda: all(gone(pid) for pid in pids))


def test_hosts_over_ssh(thalweg, fake_ssh, tmp_path):
    done = thalweg("run", *fake_ssh, "-x", "EXTRA=it's $HOME", *python(SHOW))
    assert done.code == 0, done.err
    ranks = {r: json.loads(lines[0]) for r, lines in by_rank(done.out).items()}
    assert [(ranks[r]["FAKE_HOST"], ranks[r]["LOCAL_RANK"], ranks[r]["LOCAL_WORLD_SIZE"]) for r in range(3)] == [
        ("one", "0", "2"), ("one", "1", "2"), ("me@two", "0", "1")]
    for rank in range(3):
        assert ranks[rank]["RANK"] == str(rank) and ranks[rank]["WORLD_SIZE"] == "3"
        assert ranks[rank]["MASTER_ADDR"] == "one" and ranks[rank]["EXTRA"] == "it's $HOME"
        assert ranks[rank]["THALWEG_STORE"].startswith("127.0.0.1:")


def test_host_file_and_fewer_ranks_than_slots(thalweg, fake_ssh, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("# ours\none slots=2\n\ntwo  slots=4 # many\nthree\n")
    fake_ssh[-1] = hosts
    done = thalweg("run", *fake_ssh, "-n", 4, "--", "sh", "-c", "echo $FAKE_HOST")
    assert by_rank(done.out) == {0: ["one"], 1: ["one"], 2: ["two"], 3: ["two"]}


def test_failure_on_a_host_ends_the_others(thalweg, fake_ssh, tmp_path):
    folder = tmp_path / "pids"
    command = sleepers(folder)
    command[-1] = f"if [ $RANK = 2 ]; then while [ $(ls {folder} | wc -l) -lt 4 ]; do sleep 0.02; done; exit 9; fi; " \
        + command[-1]
    done = thalweg("run", *fake_ssh, *command)
    assert done.code == 9
    assert "rank 2" in done.err and "host me@two" in done.err
    assert all(gone(pid) for pid in pids_in(folder, 4))


def test_host_that_cannot_be_reached(thalweg, tmp_path):
    done = thalweg("run", "--ssh", "false", "--hosts", "nowhere", "true")
    assert done.code == 1 and "host nowhere" in done.err


@pytest.mark.parametrize("arguments,words", [
    (["-n", "2"], ["no program"]),
    (["-n", "0", "true"], ["-n", "0", "from 1 to 4096"]),
    (["-n", "5000", "true"], ["-n", "5000", "from 1 to 4096"]),
    (["-n", "2", "no-such-program"], ["no-such-program", "No such file"]),
    (["-n", "2", "--grce", "1s", "true"], ["--grce"]),
    (["-n", "2", "--grace", "soon", "true"], ["--grace", "soon"]),
    (["-n", "2", "--timeout", "0s", "true"], ["--timeout", "above 0"]),
    (["-n", "2", "-x", "NOT_SET_HERE", "true"], ["NOT_SET_HERE", "not set"]),
    (["-n", "2", "-x", "=3", "true"], ["-x", "NAME=value"]),
    (["-n", "4", "--hosts", "a:2,b", "true"], ["-n", "4", "slots for 3"]),
    (["--hosts", "a:0", "true"], ["--hosts", "'0'", "host a", "from 1 to 4096"]),
    (["--hosts", "a,,b", "true"], ["--hosts", "no name"]),
    (["--hosts", "-oProxyCommand=x", "true"], ["--hosts", "no name"]),
    (["--hosts", "a", "--ssh", " ", "true"], ["--ssh"]),
    (["--agent"], ["--agent", "standard input"]),
])
def test_bad_arguments(arguments, words):
    done = subprocess.run([PROGRAM, "run", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=30)
    assert done.returncode == 2, done.stdout
    for word in words:
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize("line,words", [
    ("one slots=x", ["line 2", "'x'", "host one"]),
    ("one two", ["line 2", "'two'", "slots=N"]),
    ("", ["names no host"]),
])
def test_bad_host_file(thalweg, tmp_path, line, words):
    hosts = tmp_path / "hosts"
    hosts.write_text(f"# hosts\n{line}\n")
    done = thalweg("run", "--hosts", hosts, "true")
    assert done.code == 2
    for word in words:
        assert word in done.err, done.err


def test_torch_programs_find_each_other(thalweg):
    pytest.importorskip("torch")
    done = thalweg("run", "-n", 2, *python("""
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        x = torch.tensor([float(dist.get_rank() + 1)])
        dist.all_reduce(x)
        print(x.item())
        dist.destroy_process_group()
    """))
    assert done.code == 0, done.err
    assert by_rank(done.out) == {0: ["3.0"], 1: ["3.0"]}


def test_output_that_cannot_be_passed_on_is_an_error():
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, "run", "-n", "1", "--", "echo", "hi"], stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=30)
    assert done.returncode == 2 and "cannot pass on what the ranks print" in done.stderr


AFFINITY = "import json, os; print(json.dumps(sorted(os.sched_getaffinity(0))))"


def cores_of_ranks(done):
    assert done.code == 0, done.err
    return {rank: set(json.loads(lines[0])) for rank, lines in by_rank(done.out).items()}


@pytest.mark.parametrize("options", [(), ("--bind", "core")])
def test_bind_gives_each_rank_cores_of_its_own(thalweg, options):
    mine = os.sched_getaffinity(0)
    ranks = min(len(mine), 3)
    cores = cores_of_ranks(thalweg("run", "-n", ranks, *options, *python(AFFINITY)))
    assert sorted(cores) == list(range(ranks))
    assert set().union(*cores.values()) == mine
    assert sum(map(len, cores.values())) == len(mine)
    assert max(map(len, cores.values())) - min(map(len, cores.values())) <= 1


def test_bind_none_and_too_few_cores_leave_ranks_alone(thalweg):
    mine = os.sched_getaffinity(0)
    assert cores_of_ranks(thalweg("run", "-n", 1, "--bind", "none", *python(AFFINITY))) == {0: mine}
    crowd = len(mine) + 1
    if crowd > 64:
        pytest.skip("too many cores to crowd")
    assert cores_of_ranks(thalweg("run", "-n", crowd, *python(AFFINITY))) == {r: mine for r in range(crowd)}
    refused = thalweg("run", "-n", crowd, "--bind", "core", *python(AFFINITY))
    assert refused.code != 0
    assert f"there are {crowd} ranks and {len(mine)} cores: write none" in refused.err


def test_bind_by_agents(thalweg, fake_ssh):
    """Both hosts are this machine: each agent divides its cores among its own ranks."""
    mine = os.sched_getaffinity(0)
    cores = cores_of_ranks(thalweg("run", *fake_ssh, *python(AFFINITY)))
    assert cores[2] == mine
    assert cores[0] | cores[1] == mine and (len(mine) < 2 or not cores[0] & cores[1])
    refused = thalweg("run", "--bind", "socket", *fake_ssh, *python(AFFINITY))
    assert refused.code != 0 and "--bind: 'socket' is not allowed: core or none" in refused.err
