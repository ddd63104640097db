"""`thalweg trace replay`. test_two_processes.py replays a run with loss."""
import struct
import subprocess
from pathlib import Path

VERSION = 5  # kVersion in src/proto/dlcp/record/record_codec.cc
PROGRAM = Path(__file__).resolve().parents[2] / "build/release/examples/two_processes"


def framed(content):
    """A recording of one block."""
    checksum = 0xcbf29ce484222325
    for byte in content:
        checksum = (checksum ^ byte) * 0x100000001b3 % 2**64
    return b"TLWR" + bytes([VERSION, 0, 0, 0]) + struct.pack("<IQ", len(content), checksum) + content


def test_replay_refuses(thalweg, tmp_path):
    missing = thalweg("trace", "replay", tmp_path / "none.dlcp")
    assert missing.code == 2 and "none.dlcp" in missing.err
    file = tmp_path / "noise.dlcp"
    for content, error in [
        (b"noise", "noise.dlcp: this is no recording of Thalweg"),
        (b"TLWR" + bytes([VERSION + 1, 0, 0, 0]),
         f"a recording of version {VERSION + 1}: only {VERSION} is known"),
        (framed(b"12345")[:-1] + b"6", "block 1 of the recording is damaged"),
        (framed(b"12345")[:-1], "block 1 of the recording is cut off"),
        (framed(b"12345"), "the options of the recorded endpoint cannot be read"),
    ]:
        file.write_bytes(content)
        done = thalweg("trace", "replay", file)
        assert done.code == 2 and error in done.err


def test_replay_names_a_difference(thalweg, tmp_path):
    address = "127.0.0.1:17322"
    options = ["--floats", "3000", "--rounds", "2", "--record", tmp_path]
    receiver = subprocess.Popen([PROGRAM, "recv", address, *options], stdout=subprocess.DEVNULL)
    try:
        subprocess.run([PROGRAM, "send", address, *options], check=True, stdout=subprocess.DEVNULL,
                       timeout=60)
        assert receiver.wait(timeout=60) == 0
    finally:
        receiver.kill()
    file = tmp_path / "sender-0.dlcp"
    assert thalweg("trace", "replay", file).out.startswith("same: ")
    # Changes the last counter of the end record and corrects the block's checksum.
    content = file.read_bytes()[20:]
    assert framed(content) == file.read_bytes()
    file.write_bytes(framed(content[:-1] + bytes([content[-1] ^ 1])))
    done = thalweg("trace", "replay", file)
    assert done.code == 1
    assert done.out.startswith("different: record ") and "(end)" in done.out
