"""`thalweg switch`, `thalweg job` and `thalweg bench switch`; two jobs that share a switch."""
import json
import socket
import subprocess
import threading

import pytest

from test_run import PROGRAM, ROOT


@pytest.fixture
def switch(tmp_path):
    """start(yaml) runs a switch and returns its control address."""
    processes = []

    def start(text="control: 127.0.0.1:0\n"):
        config = tmp_path / "switch.yaml"
        config.write_text(text)
        process = subprocess.Popen([PROGRAM, "switch", "--config", config], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        name, address = process.stdout.readline().split()
        assert name == "control"
        return address

    yield start
    for process in processes:
        process.terminate()
        assert process.wait(timeout=10) == 0


WORKERS = "127.0.0.1:6001,127.0.0.1:6002"


def test_jobs_come_and_go(thalweg, switch):
    address = switch("control: 127.0.0.1:0\naggregators: 32\nmax_jobs: 2\nshards: 2\n")

    def job(*arguments):
        return thalweg("job", *arguments, "--switch", address)

    one = job("create", "--name", "one", "--workers", WORKERS, "--servers", "127.0.0.1:6003", "--limit", 8,
              "--keyed", "--json").json()
    assert one["job"] == 1 and len(one["key"]) == 32 and len(one["data"]) == 2
    two = job("create", "--workers", WORKERS, "--servers", "127.0.0.1:6003", "--json").json()
    assert two["job"] == 2 and two["key"] == ""
    listed = job("list", "--json").json()
    assert [j["name"] for j in listed["jobs"]] == ["one", ""] and listed["jobs"][0]["limit"] == 8
    assert "one" in job("list").out
    full = job("create", "--workers", WORKERS, "--servers", "127.0.0.1:6003")
    assert full.code == 2 and "2 jobs" in full.err

    # Packets from strangers and malformed packets are only counted.
    host, port = two["data"][0].rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"x" * 100, (host, int(port)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as worker:
        worker.bind(("127.0.0.1", 6001))
        worker.sendto(b"x" * 100, (host, int(port)))
    for _ in range(100):
        stats = job("stats", "--json").json()
        if stats["switch"]["malformed"] == 1:
            break
    assert stats["switch"]["strangers"] == 1 and stats["switch"]["malformed"] == 1
    assert stats["jobs"][1]["ports"][0]["packets_in"] == 1
    assert stats["jobs"][1]["counters"]["stored"] == 0
    assert "malformed" in job("stats", 2).out

    assert job("remove", 1).code == 0
    gone = job("remove", 1)
    assert gone.code == 2 and "no such job" in gone.err
    assert [j["job"] for j in job("list", "--json").json()["jobs"]] == [2]


@pytest.mark.parametrize("arguments, error", [
    (["--workers", "nobody", "--servers", "127.0.0.1:1"], "nobody"),
    (["--workers", WORKERS, "--servers", "127.0.0.1:1", "--limit", "1000000"], "limit: 1000000"),
    (["--workers", "127.0.0.1:1,127.0.0.1:1", "--servers", "127.0.0.1:1"], "twice"),
])
def test_refused_jobs(thalweg, switch, arguments, error):
    answer = thalweg("job", "create", *arguments, "--switch", switch())
    assert answer.code == 2 and error in answer.err


def test_token(thalweg, switch):
    address = switch("control: 127.0.0.1:0\ntoken: secret\n")
    assert "token" in thalweg("job", "list", "--switch", address).err
    assert thalweg("job", "list", "--switch", address, "--token", "secret").code == 0


def test_key(thalweg, tmp_path, monkeypatch):
    keys = [tmp_path / name for name in ("key", "other")]
    for key, digit in zip(keys, "ab"):
        key.write_text(digit * 32)
    processes = {}
    for name, arguments in {"keyed": ["--key-file", keys[0]], "plain": ["--key-file", "none"]}.items():
        config = tmp_path / f"{name}.yaml"
        config.write_text("control: 127.0.0.1:0\n")
        processes[name] = subprocess.Popen([PROGRAM, "switch", "--config", config, *arguments],
                                           stdout=subprocess.PIPE, text=True)
    try:
        keyed, plain = (started(process)["control"] for process in processes.values())

        def job(address, *key):
            return thalweg("job", "list", "--switch", address, "--timeout", 20, *key)

        assert job(keyed, "--key-file", keys[0]).code == 0
        without = job(keyed)
        assert without.code == 2 and "the switch holds a key" in without.err and "--key-file" in without.err
        other = job(keyed, "--key-file", keys[1])
        assert other.code == 2 and "wrong key" in other.err
        unasked = job(plain, "--key-file", keys[0])
        assert unasked.code == 2 and "Start the switch with --key-file" in unasked.err
        # The job key is the key of switches unless another is named.
        monkeypatch.setenv("THALWEG_KEY_FILE", str(keys[0]))
        assert job(keyed).code == 0 and job(plain).code == 2
        monkeypatch.setenv("THALWEG_SWITCH_KEY_FILE", "none")
        assert job(keyed).code == 2 and job(plain).code == 0
        missing = job(keyed, "--key-file", tmp_path / "nowhere")
        assert missing.code == 2 and "--key-file" in missing.err and "nowhere" in missing.err
    finally:
        for process in processes.values():
            process.terminate()
            assert process.wait(timeout=10) == 0


def started(process):
    """What a switch prints at its start."""
    lines = {}
    while not {"control", "data"} <= lines.keys():
        name, value = process.stdout.readline().split()
        lines[name] = value
    return lines


def test_a_switch_that_other_hosts_reach_draws_a_token_unless_one_is_given(thalweg, tmp_path):
    config = tmp_path / "switch.yaml"
    for text, secret in [("", True), ("token: secret\n", False), ('token: ""\n', False)]:
        config.write_text("control: 0.0.0.0:0\n" + text)
        process = subprocess.Popen([PROGRAM, "switch", "--config", config], stdout=subprocess.PIPE, text=True)
        lines = started(process)
        address = lines["control"].replace("0.0.0.0", "127.0.0.1")
        without = thalweg("job", "list", "--switch", address)
        if secret:
            name, token = process.stdout.readline().split()
            assert name == "token" and len(token) == 32
            assert without.code == 2 and "THALWEG_SWITCH_TOKEN" in without.err and "printed at its start" in without.err
            assert thalweg("job", "list", "--switch", address, "--token", token).code == 0
        else:
            assert (without.code == 0) == ("secret" not in text)
        process.terminate()
        rest = process.stdout.read()
        assert process.wait(timeout=10) == 0 and "token" not in rest


def test_requests_of_one_address_are_limited(thalweg, switch):
    address = switch("control: 127.0.0.1:0\nrequests_per_second: 20\n")
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as stream:
        stream.sendall(b'{"op": "list"}\n' * 200)
        answers = [json.loads(line) for _, line in zip(range(200), stream.makefile())]
    served = sum(answer["ok"] for answer in answers)
    assert 20 <= served < 100
    refused = answers[-1]
    assert not refused["ok"] and refused["code"] == "no resource"
    assert "127.0.0.1 has sent more than 20 requests in a second" in refused["error"] and "ask less often" in refused["error"]


def test_control_socket_survives_nonsense(thalweg, switch):
    address = switch()
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as stream:
        for line, error in [(b"nonsense\n", "JSON"), (b'{"op": "fly"}\n', "op"), (b'{"op": "remove", "job": -1}\n', "job"),
                            (b'{"op": "create", "wrkers": []}\n', "wrkers")]:
            stream.sendall(line)
            answer = json.loads(stream.makefile().readline())
            assert not answer["ok"] and error in answer["error"]
        # The connection ends if a line is too long.
        try:
            stream.sendall(b"x" * 200_000)
            assert stream.recv(1) == b""
        except ConnectionError:
            pass
    assert thalweg("job", "list", "--switch", address).code == 0


@pytest.mark.parametrize("text, error", [
    ("shards: 0", "'shards'"),
    ("aggregators: 4\nshards: 8", "'aggregators': 4"),
    ("colour: red", "colour"),
    ("data: nowhere", "'data'"),
    ("elements: 4096", "'elements'"),
    ("max_jobs: 4096\nshards: 64", "'max_jobs'"),
    ("data: 0.0.0.0:0", "without 'advertise'"),
    ("requests_per_second: 0", "'requests_per_second'"),
])
def test_bad_configuration(thalweg, tmp_path, text, error):
    config = tmp_path / "switch.yaml"
    config.write_text(text + "\n")
    answer = thalweg("switch", "--config", config)
    assert answer.code == 2 and error in answer.err


def test_addresses_that_cannot_be_printed_are_an_error(tmp_path):
    config = tmp_path / "switch.yaml"
    config.write_text("control: 127.0.0.1:0\n")
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, "switch", "--config", config], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2 and "standard output" in done.stderr


@pytest.mark.parametrize("command", ["list", "stats"])
@pytest.mark.parametrize("answer", ['{"jobs": [3]}', '{"jobs": [{"job": "one", "limit": []}]}', "[]"])
def test_odd_answers_are_errors(thalweg, command, answer):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            stream, _ = listener.accept()
            with stream:
                stream.makefile().readline()
                stream.sendall(answer.encode() + b"\n")

        server = threading.Thread(target=serve)
        server.start()
        done = thalweg("job", command, "--switch", "127.0.0.1:%d" % listener.getsockname()[1])
        server.join()
    assert done.code == 2 and "the switch at 127.0.0.1" in done.err


def test_bench_switch(thalweg):
    measured = thalweg("bench", "switch", "--seconds", 0.05, "--json").json()
    for rate in ("packets_per_s_core", "udp_packets_per_s_core", "limit_packets_per_s"):
        assert measured[rate] > 0
    assert measured["elements"] == 64 and measured["workers"] == 8
    assert "data plane" in thalweg("bench", "switch", "--seconds", 0.05).out


@pytest.mark.parametrize("options", [[], ["--xdp"]], ids=["process", "xdp"])
def test_two_jobs_share_a_switch_and_outlive_it(namespaces, options):
    done = subprocess.run([ROOT / "examples/two_jobs_one_switch.sh", *options, "40", "20000"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all exact") == 6
