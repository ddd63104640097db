"""NVIDIA's MPS, which lets processes compute on one GPU at the same time."""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_SECONDS = 60
_CONTROL = "nvidia-cuda-mps-control"
# Without MPS's server this fails, and the first process waits until the server runs.
_PROBE = "import torch; torch.zeros(1, device='cuda').item()"


class Mps:
    """MPS in folders of its own, from `with` to its end.

    `environment` is what processes need to use it; it is empty if MPS does not run. `problem` then
    says why.
    """

    def __init__(self, wanted=True):
        self.environment = {}
        self.problem = None if wanted else "not asked for"
        self._folder = None

    def __enter__(self):
        if self.problem is None:
            self.problem = self._start()
        if self.problem is not None:
            self._end()
        return self

    def __exit__(self, *_):
        self._end()

    def _start(self):
        """Returns why it cannot run; None if it runs."""
        if shutil.which(_CONTROL) is None:
            return f"there is no {_CONTROL}"
        self._folder = Path(tempfile.mkdtemp(prefix="thalweg-mps-"))
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": str(self._folder / "pipe"),
                            "CUDA_MPS_LOG_DIRECTORY": str(self._folder / "log")}
        for path in self.environment.values():
            Path(path).mkdir()
        try:
            started = self._run([_CONTROL, "-d"])
            if started.returncode != 0:
                return f"{_CONTROL} -d ended with {started.returncode}: {_last_line(started)}"
            probe = self._run([sys.executable, "-c", _PROBE])
            if probe.returncode != 0:
                return f"no process can use the GPU through it: {_last_line(probe)}"
        except subprocess.TimeoutExpired as late:
            return f"{late.cmd[0]} has not ended within {_SECONDS} s"
        return None

    def _run(self, words, **more):
        return subprocess.run(words, env={**os.environ, **self.environment}, capture_output=True,
                              text=True, timeout=_SECONDS, check=False, **more)

    def _end(self):
        if self._folder is None:
            return
        try:
            self._run([_CONTROL], input="quit\n")
        except subprocess.TimeoutExpired:
            print(f"{_CONTROL}: it does not end; its folder is {self._folder}", file=sys.stderr)
        self.environment = {}
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None


def _last_line(ended):
    lines = (ended.stderr.strip() or ended.stdout.strip() or "it said nothing").splitlines()
    return lines[-1]
