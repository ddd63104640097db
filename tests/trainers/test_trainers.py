"""The examples with Lightning, Accelerate and Hugging Face's Trainer, and Kubernetes' own schemas for the examples' YAML:
`make test-trainers`, in an environment of its own."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def torchrun(*words):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
                   "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false"}
    run = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words],
                         cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("program,name", [("lightning_digits.py", "Lightning"), ("accelerate_digits.py", "Accelerate")])
def test_digits__above_97_percent_by_our_backend(program, name):
    text = torchrun(f"examples/{program}", "--backend", "thalweg", "--epochs", "8")
    right = re.search(rf"^thalweg, 2 ranks, {name}.*: ([0-9.]+)% of the test images right", text, re.MULTILINE)
    assert right and float(right.group(1)) > 97, text


def test_trainer__learns_and_replicas_stay_equal():
    """The example compares all ranks' parameters, and fails where they differ."""
    text = torchrun("examples/trainer_text.py", "--backend", "thalweg", "--steps", "60")
    before, after = map(float, re.search(r"^thalweg, 2 ranks, Trainer: ([0-9.]+) bits a byte before, ([0-9.]+) after",
                                         text, re.MULTILINE).groups())
    assert after < 0.8 * before, text


@pytest.mark.parametrize("file", sorted((ROOT / "examples/kubernetes").glob("*.yaml")), ids=lambda file: file.name)
def test_kubernetes__every_object_fits_its_schema(file):
    import kubernetes_validate
    import yaml
    versions = kubernetes_validate.latest_version()
    for document in yaml.safe_load_all(file.read_text()):
        kubernetes_validate.validate(document, versions, strict=True)
        broken = {**document, "spec": {**document["spec"], "no-such-field": 1}}
        with pytest.raises(kubernetes_validate.ValidationError, match="no-such-field"):
            kubernetes_validate.validate(broken, versions, strict=True)
