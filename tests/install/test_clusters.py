"""What docs/clusters.md leads to: the batch scripts of Slurm run (with an srun of our own), the objects of Kubernetes fit
together, and the Dockerfile names only what there is (test_image.py runs its steps). `make test-trainers` holds the objects against Kubernetes' schemas."""
import os
import re
import shlex
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dockerfile import steps_of

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "examples/slurm").glob("*.sbatch"))
OPTIONS = {"job-name", "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "time", "output", "error", "partition",
           "account", "gres", "gpus-per-node", "mem", "exclusive", "constraint"}  # those of sbatch(1) that scripts may need
# Runs the tasks of a step on this machine, with the variables that slurmd gives them.
SRUN = """#!{python}
import os, subprocess, sys
words = sys.argv[1:]
while words[0].startswith("--"):
    words.pop(0)
nodes, each = int(os.environ["SLURM_JOB_NUM_NODES"]), int(os.environ["SLURM_NTASKS_PER_NODE"])
tasks = [subprocess.Popen(words, env={{**os.environ, "SLURM_PROCID": str(i), "SLURM_LOCALID": str(i % each),
                                      "SLURM_NODEID": str(i // each), "SLURM_STEP_NODELIST": "localhost",
                                      "SLURM_STEP_NUM_TASKS": str(nodes * each), "SLURM_STEP_ID": "0",
                                      "SLURM_STEP_TASKS_PER_NODE": f"{{each}}(x{{nodes}})"}}) for i in range(nodes * each)]
sys.exit(max(task.wait() for task in tasks))
"""
SCONTROL = """#!/bin/sh
[ "$1 $2 $3" = "show hostnames localhost" ] && echo localhost
"""


def options_of(script):
    """The options of the #SBATCH lines, which must come before the first command."""
    head = []
    for line in script.read_text().splitlines():
        if line and not line.startswith("#"):
            break
        head.append(line)
    assert script.read_text().count("\n#SBATCH") == sum(line.startswith("#SBATCH") for line in head)
    return dict(re.fullmatch(r"#SBATCH --([a-z-]+)=(\S+)", line).groups() for line in head if line.startswith("#SBATCH"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_batch_script__has_options_that_sbatch_knows(script):
    options = options_of(script)
    assert options.keys() <= OPTIONS
    assert int(options["nodes"]) >= 2 and re.fullmatch(r"\d\d:\d\d:\d\d", options["time"])
    assert os.access(script, os.R_OK) and script.read_text().startswith("#!/bin/bash\n")


@pytest.fixture
def slurm(tmp_path):
    """Runs a batch script as sbatch would, on this machine. The job is of two nodes with `each` tasks."""
    for name, text in (("srun", SRUN.format(python=sys.executable)), ("scontrol", SCONTROL),
                       ("torchrun", f"#!/bin/sh\nexec {sys.executable} -m torch.distributed.run \"$@\"\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def run(script, *words, each):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "OMP"))}
        environment |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python"),
                        "SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "localhost", "SLURM_JOB_NUM_NODES": "2",
                        "SLURM_NTASKS": str(2 * each), "SLURM_NTASKS_PER_NODE": str(each), "SLURM_CPUS_PER_TASK": "1"}
        return subprocess.run(["bash", ROOT / "examples/slurm" / script, *map(str, words)], cwd=ROOT, env=environment,
                              text=True, capture_output=True, timeout=300, check=False)

    return run


def test_srun__every_task_is_a_rank_of_a_program_in_cpp(slurm):
    done = slurm("srun.sbatch", ROOT / "build/release/examples/allreduce", 3, 1000, 60, each=2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": 4 ranks, sum 4") == 4 * 3, done.stdout


def test_srun__pytorch_gets_its_variables(slurm, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text("import torch, torch.distributed as dist, thalweg\n"
                                       "dist.init_process_group('thalweg')\n"
                                       "one = torch.ones(3)\n"
                                       "dist.all_reduce(one)\n"
                                       "print('sum', one[0].item(), 'on', dist.get_rank(), flush=True)\n")
    done = slurm("srun.sbatch", sys.executable, tmp_path / "train.py", each=1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.split("\n")[:2]) == ["sum 2.0 on 0", "sum 2.0 on 1"]


def test_torchrun__one_on_each_node(slurm):
    pytest.importorskip("torch")
    done = slurm("torchrun.sbatch", "examples/ddp_digits.py", "--backend", "thalweg", "--epochs", "1", each=1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "thalweg, 2 ranks:" in done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_batch_script__without_a_program_says_how(slurm, script):
    done = slurm(script.name, each=1)
    assert done.returncode == 2 and "usage: sbatch" in done.stderr


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
        return True
    except OSError:
        return False


def on_two_ranks_over_ipv6(*command, **variables):
    with socket.socket(socket.AF_INET6) as one:
        one.bind(("::1", 0))
        port = one.getsockname()[1]
    ranks = [subprocess.Popen(
        list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "THALWEG_SHARED_MEMORY": "0", "THALWEG_DEBUG": "INFO",
             **{name: value.format(rank=rank, port=port) for name, value in variables.items()}}) for rank in range(2)]
    try:
        said = [rank.communicate(timeout=200)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0], said
    return said


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_ipv6__a_program_in_cpp():
    for text in on_two_ranks_over_ipv6(ROOT / "build/release/examples/allreduce", 3, 1000, 60, THALWEG_STORE="[::1]:{port}",
                                       THALWEG_RANK="{rank}", THALWEG_SIZE="2"):
        assert text.count(": 2 ranks, sum 2") == 3 and "listens at [::1]:" in text, text


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_ipv6__pytorch_over_tcp_and_dlcp(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text("import torch, torch.distributed as dist, thalweg\n"
                                       "dist.init_process_group('thalweg')\n"
                                       "dlcp = dist.new_group([0, 1], pg_options=thalweg.Options(transport='dlcp'))\n"
                                       "for group in (None, dlcp):\n"
                                       "    one = torch.ones(100_000)\n"
                                       "    dist.all_reduce(one, group=group)\n"
                                       "    assert (one == 2).all()\n"
                                       "print('fine', flush=True)\n")
    for text in on_two_ranks_over_ipv6(sys.executable, tmp_path / "train.py", MASTER_ADDR="::1", MASTER_PORT="{port}",
                                       RANK="{rank}", WORLD_SIZE="2"):
        assert "fine" in text and "listens at [::1]:" in text and "transport dlcp" in text, text


def objects():
    return {(one["kind"], one["metadata"]["name"]): one
            for file in sorted((ROOT / "examples/kubernetes").glob("*.yaml"))
            for one in yaml.safe_load_all(file.read_text())}


def test_kubernetes__objects_fit_together():
    found = objects()
    service, job = found["Service", "thalweg"], found["Job", "thalweg"]
    policy = found["NetworkPolicy", "thalweg"]["spec"]
    pod = job["spec"]["template"]
    labels = pod["metadata"]["labels"]
    for selector in (service["spec"]["selector"], policy["podSelector"]["matchLabels"],
                     policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"]):
        assert selector.items() <= labels.items()
    # Pods have names only under the service whose name is their subdomain.
    assert pod["spec"]["subdomain"] == service["metadata"]["name"] and service["spec"]["clusterIP"] == "None"
    (container,) = pod["spec"]["containers"]
    flags = dict(word.removeprefix("--").split("=", 1) for word in container["command"] if word.startswith("--"))
    assert int(flags["nnodes"]) == job["spec"]["completions"] == job["spec"]["parallelism"]
    assert flags["master-addr"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert (ROOT / next(word for word in container["command"] if word.endswith(".py"))).is_file()
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert re.fullmatch(r"\$\((\w+)\)", flags["node-rank"]).group(1) in variables
    # Every volume is mounted where something looks for it, and is there.
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in pod["spec"]["volumes"]}
    assert Path(variables["THALWEG_KEY_FILE"]).parent == Path(mounts["key"])


def test_kubernetes__the_policy_opens_the_ports_that_the_job_uses():
    found = objects()
    pod = found["Job", "thalweg"]["spec"]["template"]["spec"]
    ranks, metrics = found["NetworkPolicy", "thalweg"]["spec"]["ingress"]
    (setting,) = pod["securityContext"]["sysctls"]
    first, last = map(int, setting["value"].split())
    assert setting["name"] == "net.ipv4.ip_local_port_range"
    opened = {(port["protocol"], port["port"], port.get("endPort")) for port in ranks["ports"]}
    flags = " ".join(pod["containers"][0]["command"])
    master = int(re.search(r"--master-port=(\d+)", flags).group(1))
    assert opened == {("TCP", master, None), ("TCP", first, last), ("UDP", first, last)}
    variables = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert variables["THALWEG_METRICS"].endswith(f":{metrics['ports'][0]['port']}")
    assert {port["containerPort"] for port in pod["containers"][0]["ports"]} == {master, metrics["ports"][0]["port"]}


def problems_of(text, root=ROOT):
    """What a Dockerfile names that is not there."""
    problems = []
    stages = [re.search(r" AS (\w+)$", words).group(1) for name, words in steps_of(text)
              if name == "FROM" and " AS " in words]
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (root / "Makefile").read_text(), re.MULTILINE))
    for name, words in steps_of(text):
        if name == "COPY" and words.startswith("--from="):
            if words.split()[0].removeprefix("--from=") not in stages:
                problems.append(f"no stage: {words}")
        elif name == "COPY":
            problems += [f"no file: {source}" for source in words.split()[:-1] if not (root / source).exists()]
        elif name == "RUN":
            for command in re.split(r"&&|;", words):
                first, *rest = shlex.split(command)
                if first == "make":
                    problems += [f"no target: {target}" for target in rest if target not in targets]
                elif first.startswith("tools/") and not (root / first).stat().st_mode & stat.S_IXUSR:
                    problems.append(f"no program: {first}")
        elif name not in {"FROM", "WORKDIR", "ENV", "USER", "CMD"}:
            problems.append(f"unknown: {name}")
    return problems


def test_dockerfile__names_only_what_is_there():
    text = (ROOT / "Dockerfile").read_text()
    assert problems_of(text) == []
    steps = steps_of(text)
    assert sum(name == "FROM" for name, _ in steps) == 2
    assert ("RUN", "tools/setup") in steps and ("RUN", "make wheel") in steps
    assert ("USER", "1000") in steps  # nobody trains as root
    # What tools/setup reads was copied before it ran.
    before = [words for name, words in steps[:steps.index(("RUN", "tools/setup"))] if name == "COPY"]
    for needed in {"tools/setup", *re.findall(r"tools/site/[a-z.]+", (ROOT / "tools/setup").read_text())}:
        assert any(needed in words.split() for words in before), needed
    # The PyTorch of the image is the one that the wheel is made for.
    assert re.search(r"torch==[0-9.]+", text).group() in (ROOT / "tools/setup").read_text()


@pytest.mark.parametrize("line,problem", [
    ("COPY no/such/file .", "no file: no/such/file"),
    ("COPY --from=other /a /b", "no stage: --from=other /a /b"),
    ("RUN make no-such-target", "no target: no-such-target"),
    ("RUM make wheel", "unknown: RUM"),
])
def test_a_broken_dockerfile__is_found(line, problem):
    assert problems_of(f"FROM debian:12 AS build\n{line}\n") == [problem]


def test_dockerignore__leaves_out_what_git_does():
    ignored = set((ROOT / ".dockerignore").read_text().split())
    assert {".git", "build", ".venv"} <= ignored
    assert not any((ROOT / "examples").match(pattern) or pattern == "tools" for pattern in ignored)
