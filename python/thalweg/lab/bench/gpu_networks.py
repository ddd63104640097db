"""Where the ranks of `thalweg bench gpu` run: on this host over loopback, or on the hosts of a testbed.

Both run one process for each rank, and return what rank 0 has measured: by size, by library.
"""
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from thalweg.lab.bench.ranks import wait_for_ranks
from thalweg.testbed import Testbed

_RANK = [sys.executable, "-m", "thalweg.lab.bench.gpu_allreduce_rank"]
_MOST_OUTPUT = 3000  # characters to show of what ranks printed
# Shared memory is off, so that all libraries use the network.
_COMMON = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1",
           "THALWEG_SHARED_MEMORY": "0", "OMP_NUM_THREADS": "1"}


class Loopback:
    """All ranks on this host, over its loopback device."""

    most_ranks = 16

    def __init__(self, program):
        self._program = program

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, configuration, environment, timeout):
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "results.json"
            common = {**configuration, "host": "127.0.0.1", "port": _free_port(), "output": str(output)}
            logs = [Path(folder) / f"rank{rank}" for rank in range(configuration["ranks"])]
            processes = []
            for rank, path in enumerate(logs):
                with path.open("w") as log:
                    processes.append(subprocess.Popen(
                        [*_RANK, json.dumps({**common, "rank": rank})],
                        env={**os.environ, **_COMMON, "NCCL_SOCKET_IFNAME": "lo",
                             "GLOO_SOCKET_IFNAME": "lo", **environment},
                        stdout=log, stderr=subprocess.STDOUT))
            wait_for_ranks(self._program, processes, timeout, f"--timeout {timeout:g} s",
                           lambda rank: logs[rank].read_text(errors="replace"))
            return json.loads(output.read_text())


class OnTestbed:
    """One rank on each host of a testbed, which is up within a `with` statement.

    Parameters
    ----------
    topology: of the testbed.
    loss: how likely a packet between two hosts is lost. Half of it happens on either host's link.
    aggregates: whether the switches sum gradients of ATP.
    """

    def __init__(self, program, topology, loss=0.0, aggregates=False):
        self._program = program
        self._loss = loss
        self._bed = Testbed(topology, aggregate="all" if aggregates else ())

    def __enter__(self):
        self._bed.up()
        try:
            self._set_loss()
        except BaseException:
            self._bed.down()
            raise
        return self

    def __exit__(self, *_):
        self._bed.down()

    def _set_loss(self):
        if self._loss == 0:
            return
        names = {host.name for host in self._bed.hosts}
        share = 1 - (1 - self._loss) ** 0.5
        for row in self._bed.links():
            if row["from"] in names:
                self._bed.set(row["link"], loss=f"{100 * share:.6f}%")

    @property
    def most_ranks(self):
        return len(self._bed.hosts)

    def run(self, configuration, environment, timeout):
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "results.json"
            words = [*_RANK, json.dumps({**configuration, "host": self._bed.hosts[0].address, "port": 29500,
                                         "output": str(output)})]
            job = self._bed.run(words, hosts=f"0-{configuration['ranks'] - 1}", timeout=timeout,
                                environment={**_COMMON, **environment})
            if job.code == 124:
                sys.exit(f"{self._program}: the ranks have not ended within --timeout {timeout:g} s:\n"
                         + job.output[-_MOST_OUTPUT:])
            if job.code != 0 or not output.exists():
                sys.exit(f"{self._program}: the ranks ended with {job.code}:\n{job.output[-_MOST_OUTPUT:]}")
            return json.loads(output.read_text())


def _free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
