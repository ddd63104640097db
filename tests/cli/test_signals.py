"""SIGTERM ends every subcommand that may run for long, in any phase, within LIMIT_S, with the exit code of docs/commands.md."""
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from test_run import PROGRAM, ROOT, wait_until
from test_testbed import STAR, needs_namespaces

sys.path.insert(0, str(ROOT / "tools/site"))
import cli_pages  # noqa: E402

LIMIT_S = 5  # 2 s in the documents; other tests run beside this one
BY_THE_SIGNAL = -signal.SIGTERM  # a shell says 143
ENDED = 128 + signal.SIGTERM

# Seconds after the start of the program: its libraries are loaded, options read, sockets opened, and it is at work.
PHASES = [0.0, 0.01, 0.03, 0.1, 0.3, 1.5]

NETWORK = "leaf-spine:racks=9,hosts=16,spines=4,host=100G,uplink=100G"
# A file that nobody writes to, and a place where something listens that never says a word.
PIPE, SILENT = "{pipe}", "{silent}"
COMMANDS = {
    "switch": (["--config", "switch.yaml"], {0, BY_THE_SIGNAL}),
    "ps": (["--config", "ps.yaml"], {0, BY_THE_SIGNAL}),
    "run": (["-n", "2", "--", "sleep", "60"], {ENDED, BY_THE_SIGNAL}),
    "run of ranks that ignore it": (["-n", "2", "--grace", "1s", "--", "sh", "-c", "trap '' TERM; sleep 60 & wait; wait"],
                                    {ENDED, BY_THE_SIGNAL}),
    "top": (["127.0.0.1:1", "--interval", "60"], {BY_THE_SIGNAL}),
    "probe": ([], {BY_THE_SIGNAL}),
    "bench allreduce": (["--ranks", "2"], {ENDED, BY_THE_SIGNAL}),
    "bench transport": ([], {ENDED, BY_THE_SIGNAL}),
    "bench switch": ([], {BY_THE_SIGNAL}),
    "bench kernels": ([], {BY_THE_SIGNAL}),
    "bench sim": ([], {BY_THE_SIGNAL}),
    "sim run": ([ROOT / "scenarios/loss.yaml"], {BY_THE_SIGNAL}),
    "plan compare": (["--topology", NETWORK, "--size", "97MB"], {BY_THE_SIGNAL}),
    "plan best": (["--topology", NETWORK, "--size", "97MB"], {BY_THE_SIGNAL}),
    "plan show": (["--topology", NETWORK, "--size", "97MB", "--scheme", "rat"], {BY_THE_SIGNAL}),
    "plan verify": ([PIPE], {BY_THE_SIGNAL}),
    "plan mixing": (["--topology", PIPE], {BY_THE_SIGNAL}),
    "tune thresholds": (["--topology", PIPE, "--model", "resnet50"], {BY_THE_SIGNAL}),
    "trace merge": ([PIPE, "--out", "merged.json"], {BY_THE_SIGNAL}),
    "trace chakra": ([PIPE, "--out", "traces"], {BY_THE_SIGNAL}),
    "trace replay": ([PIPE], {BY_THE_SIGNAL}),
    "job list": (["--switch", SILENT, "--timeout", "60"], {BY_THE_SIGNAL}),
    "job stats": (["--switch", SILENT, "--timeout", "60"], {BY_THE_SIGNAL}),
    "job remove": (["1", "--switch", SILENT, "--timeout", "60"], {BY_THE_SIGNAL}),
    "job create": (["--workers", "127.0.0.1:1", "--servers", "127.0.0.1:2", "--switch", SILENT, "--timeout", "60"], {BY_THE_SIGNAL}),
    "bench step": (["--model", "resnet18"], {BY_THE_SIGNAL}),
    "reproduce": (["rat/fig4"], {ENDED, BY_THE_SIGNAL}),
    "tune bound": (["--model", "digits-cnn"], {ENDED, BY_THE_SIGNAL}),
}
# Those that are over as soon as they have printed something, and one that needs a GPU.
NOT_TRIED = {"plan schemes", "man", "completion", "bench gpu"}
# What `probe` and `bench step` wait for in vain: rank 0 of their job.
ALONE = {"THALWEG_RANK": "1", "THALWEG_SIZE": "2", "THALWEG_STORE": "127.0.0.1:1"}


def end_after(words, seconds, folder):
    """Sends SIGTERM to a command after so many seconds. Returns its exit code; None if it had ended before."""
    variables = ALONE if "probe" in words or "step" in words else {}
    with open(folder / "said", "w+") as said:
        command = subprocess.Popen([PROGRAM, *map(str, words)], cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                   env={**os.environ, **variables})
        try:
            time.sleep(seconds)
            if command.poll() is not None:
                assert command.returncode == 0, (folder / "said").read_text()
                return None
            command.terminate()
            return command.wait(LIMIT_S)
        finally:
            command.kill()
            command.wait()


def commands(*words):
    """All commands of the program, without those that only hold others."""
    below = cli_pages.commands_in(cli_pages.sections(cli_pages.help_of(PROGRAM, list(words)))[1])
    return {" ".join(words)} if not below else {name for word in below for name in commands(*words, word)}


def test_every_command_is_here():
    here = {command.partition(" of ")[0] for command in COMMANDS} | NOT_TRIED
    there = {command for command in commands() if not command.startswith("testbed ")}  # below
    assert len(there) > 25 and there == here


@pytest.fixture
def silent():
    """The address of a server that accepts, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield "127.0.0.1:%d" % server.getsockname()[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_sigterm_ends_it_in_any_phase(command, tmp_path, silent):
    (tmp_path / "ps.yaml").write_text("workers: 1\nlisten: 127.0.0.1:0\n")
    (tmp_path / "switch.yaml").write_text("control: 127.0.0.1:0\n")
    os.mkfifo(tmp_path / "pipe")
    options, codes = COMMANDS[command]
    places = {PIPE: tmp_path / "pipe", SILENT: silent}
    words = [*command.partition(" of ")[0].split(), *(places.get(word, word) for word in options)]
    ended = [end_after(words, seconds, tmp_path) for seconds in PHASES]
    assert ended[0] is not None, "it ended at once"
    assert {code for code in ended if code is not None} <= codes, dict(zip(PHASES, ended))


@needs_namespaces
@pytest.mark.parametrize("seconds", PHASES)
def test_sigterm_ends_a_testbed_and_leaves_nothing(seconds, tmp_path):
    name = f"term{os.getpid()}"
    code = end_after(["testbed", "up", "--foreground", "--name", name, STAR], seconds, tmp_path)
    assert code in {0, BY_THE_SIGNAL}
    subprocess.run([PROGRAM, "testbed", "down", "--name", name], capture_output=True, timeout=60)
    wait_until(lambda: not any(name in line for line in subprocess.run(["ip", "netns", "list"], capture_output=True,
                                                                       text=True).stdout.splitlines()))


@needs_namespaces
@pytest.mark.parametrize("words", [["capture", "host0", "frames.pcap"], ["run", "--", "sleep", "60"]])
def test_sigterm_ends_what_uses_a_testbed(words, tmp_path):
    name = f"term{os.getpid()}"
    subprocess.run([PROGRAM, "testbed", "up", "--name", name, STAR], check=True, capture_output=True, timeout=60)
    try:
        for seconds in PHASES:
            code = end_after(["testbed", words[0], "--name", name, *words[1:]], seconds, tmp_path)
            assert code in {ENDED, BY_THE_SIGNAL, 0}, (seconds, code)
    finally:
        subprocess.run([PROGRAM, "testbed", "down", "--name", name], check=True, capture_output=True, timeout=60)
