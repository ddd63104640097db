"""Options of a process group that contradict each other are refused."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from thalweg.options import Options  # noqa: E402


def test_auto__is_the_transport_auto():
    assert Options(auto=True).transport == "auto" and Options(auto=True, transport="auto").by_switch
    assert Options().transport == "tcp"
    assert Options(auto=True, switch_address="10.0.0.1:7700").switch_address == "10.0.0.1:7700"


@pytest.mark.parametrize("given,words", [
    ({"transport": "dlcp"}, "auto: True with the transport 'dlcp'"),
    ({"transport": "atp"}, "leave one of them out"),
    ({"scheme": "ring"}, "auto: True with the scheme 'ring'")])
def test_auto__with_what_it_chooses_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        Options(auto=True, **given)
