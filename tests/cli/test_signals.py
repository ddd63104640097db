"""SIGTERM ends every subcommand that may run for long, in any phase, within LIMIT_S, with the exit code of docs/commands.md."""
import os
import signal
import subprocess
import time

import pytest

from test_run import PROGRAM, ROOT, wait_until
from test_testbed import STAR, needs_namespaces

LIMIT_S = 5  # 2 s in the documents; other tests run beside this one
BY_THE_SIGNAL = -signal.SIGTERM  # a shell says 143
ENDED = 128 + signal.SIGTERM

# Seconds after the start of the program: its libraries are loaded, options read, sockets opened, and it is at work.
PHASES = [0.0, 0.01, 0.03, 0.1, 0.3, 1.5]

NETWORK = "leaf-spine:racks=9,hosts=16,spines=4,host=100G,uplink=100G"
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
    "reproduce": (["rat/fig4"], {ENDED, BY_THE_SIGNAL}),
    "tune bound": (["--model", "digits-cnn"], {ENDED, BY_THE_SIGNAL}),
}
# What `probe` waits for in vain: rank 0 of its job.
ALONE = {"THALWEG_RANK": "1", "THALWEG_SIZE": "2", "THALWEG_STORE": "127.0.0.1:1"}


def end_after(words, seconds, folder):
    """Sends SIGTERM to a command after so many seconds. Returns its exit code; None if it had ended before."""
    variables = ALONE if words[0] == "probe" else {}
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


@pytest.mark.parametrize("command", COMMANDS)
def test_sigterm_ends_it_in_any_phase(command, tmp_path):
    (tmp_path / "ps.yaml").write_text("workers: 1\nlisten: 127.0.0.1:0\n")
    (tmp_path / "switch.yaml").write_text("control: 127.0.0.1:0\n")
    options, codes = COMMANDS[command]
    words = [*command.partition(" of ")[0].split(), *options]
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
