"""A plugin for pytest: torchft's own tests run with ProcessGroupThalweg in the place of Gloo's.

    python -m pytest -p torchft_ours --pyargs torchft.process_group_test

The tests take the class from torchft.process_group when they are imported, which is after this.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import torchft  # noqa: E402
import torchft.process_group  # noqa: E402

from thalweg.torchft import ProcessGroupThalweg  # noqa: E402

torchft.ProcessGroupGloo = torchft.process_group.ProcessGroupGloo = ProcessGroupThalweg
