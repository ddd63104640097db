"""`thalweg trace chakra`, and Chakra traces in the simulator and in `bench step`."""
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/thalweg"
GOLDEN = ROOT / "tests/fuzz/corpus/sim_chakra/digits-cnn.0.et"

# From schema/protobuf/et_def.proto: field name -> (number, type of descriptor.proto, whether it is repeated).
INT32, INT64, UINT64, DOUBLE, BOOL, STRING, ENUM, MESSAGE = 5, 3, 4, 1, 8, 9, 14, 11
SCHEMA = {
    "AttributeProto": {"name": (1, STRING, 0), "double_val": (3, DOUBLE, 0), "int32_val": (7, INT32, 0),
                       "int64_val": (9, INT64, 0), "uint64_val": (13, UINT64, 0), "bool_val": (27, BOOL, 0),
                       "string_val": (29, STRING, 0)},
    "GlobalMetadata": {"version": (1, STRING, 0), "attr": (2, MESSAGE, 1)},
    "Node": {"id": (1, UINT64, 0), "name": (2, STRING, 0), "type": (3, ENUM, 0), "ctrl_deps": (4, UINT64, 1),
             "data_deps": (5, UINT64, 1), "start_time_micros": (6, UINT64, 0), "duration_micros": (7, UINT64, 0),
             "attr": (10, MESSAGE, 1)},
}
TYPES = ["INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
         "COMM_RECV_NODE", "COMM_COLL_NODE"]


@pytest.fixture(scope="module")
def messages():
    """The classes of the schema's messages, made by Google's library."""
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    kinds = file.enum_type.add(name="NodeType")
    for number, name in enumerate(TYPES):
        kinds.value.add(name=name, number=number)
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
        for field, (number, kind, repeated) in fields.items():
            made = message.field.add(name=field, number=number, type=kind, label=3 if repeated else 1)
            if kind == MESSAGE:
                made.type_name = ".ChakraProtoMsg.AttributeProto"
            elif kind == ENUM:
                made.type_name = ".ChakraProtoMsg.NodeType"
            if field.endswith("_val"):
                made.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))
            for name in SCHEMA}


def varint(content, at):
    value = shift = 0
    while True:
        byte = content[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def parse(path, messages):
    """The metadata and the nodes of a trace, by Google's library. No field may be unknown to the schema."""
    content, at, found = path.read_bytes(), 0, []
    while at < len(content):
        size, at = varint(content, at)
        message = messages["Node" if found else "GlobalMetadata"].FromString(content[at:at + size])
        before = message.SerializeToString()
        message.DiscardUnknownFields()
        assert message.SerializeToString() == before
        found.append(message)
        at += size
    return found[0], found[1:]


def framed(*all_messages):
    content = b""
    for message in all_messages:
        text = message.SerializeToString()
        assert len(text) < 128
        content += bytes([len(text)]) + text
    return content


def attribute(node, name):
    found = [a for a in node.attr if a.name == name]
    return getattr(found[0], found[0].WhichOneof("value")) if found else None


def play(model, *arguments):
    """What `bench step` measures with two ranks on this host."""
    done = subprocess.run([PROGRAM, "run", "-n", "2", "--no-prefix", "--", PROGRAM, "bench", "step", "--model", model,
                           "--libraries", "tcp", "--steps", "2", "--json", *arguments], cwd=ROOT, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["rows"][0]["wrong"] == 0
    return result


def export(thalweg, folder, *arguments):
    done = thalweg("trace", "chakra", *arguments, "--out", folder)
    assert done.code == 0, done.err
    return done.out


def test_model__is_what_the_schema_says(thalweg, tmp_path, messages):
    text = export(thalweg, tmp_path, "--model", "resnet18", "--ranks", 2)
    assert "resnet18.0.et to" in text and "3 buckets" in text
    assert (tmp_path / "resnet18.0.et").read_bytes() == (tmp_path / "resnet18.1.et").read_bytes()
    metadata, nodes = parse(tmp_path / "resnet18.0.et", messages)
    assert metadata.version == "0.0.4"
    sums = [node for node in nodes if node.type == TYPES.index("COMM_COLL_NODE")]
    work = [node for node in nodes if node.type == TYPES.index("COMP_NODE")]
    assert len(sums) == 3 and len(work) == 6 and len(nodes) == 9
    assert sum(attribute(node, "comm_size") for node in sums) == 4 * 11_689_512
    assert all(attribute(node, "comm_type") == 0 and attribute(node, "is_cpu_op") is False for node in sums)
    assert 13_400 < sum(node.duration_micros for node in work) < 13_600
    # The next forward pass waits for all gradients.
    forward = next(node for node in work if node.name.startswith("forward"))
    assert {node.id for node in sums} <= set(forward.data_deps)


def test_model__golden(thalweg, tmp_path):
    """Bytes of a small trace. If they should change, write the file again by the command below."""
    export(thalweg, tmp_path, "--model", "digits-cnn", "--bucket", "100kB")
    assert (tmp_path / "digits-cnn.0.et").read_bytes() == GOLDEN.read_bytes()


@pytest.mark.parametrize("schedule,overlap", [("ddp", "wait-free"), ("layerwise", "bytescheduler")])
def test_sim__runs_a_trace_like_its_model(thalweg, tmp_path, schedule, overlap):
    """Each layer of the model is a bucket, so the trace is the model."""
    model = re.sub(r"tensors: \[.*?\], ", "", (ROOT / "models/alexnet.yaml").read_text())
    (tmp_path / "whole.yaml").write_text(model)
    export(thalweg, tmp_path, "--model", tmp_path / "whole.yaml", "--bucket", "1B", "--schedule", schedule)
    times = []
    for name in ("whole.yaml", "alexnet.0.et"):
        scenario = tmp_path / f"{name}.scenario.yaml"
        scenario.write_text("topology: single-switch:hosts=2,host=100G\ntransport: {kind: dctcp}\n"
                            f"jobs: [{{model: {tmp_path / name}, scheme: ring, iterations: 2, part: 0.05, "
                            f"overlap: {overlap}}}]\n")
        result = thalweg("sim", "run", scenario, "--json").json()
        times.append(result["jobs"][0]["iterations_ms"])
    assert times[0] == pytest.approx(times[1], rel=1e-6)


def test_bench_step__plays_the_buckets_of_a_trace(thalweg, tmp_path):
    export(thalweg, tmp_path, "--model", "resnet18")
    rows = [play(model, "--scale", "0.001") for model in ("resnet18", tmp_path / "resnet18.0.et")]
    for key in ("bytes", "bucket_bytes"):
        assert rows[0][key] == rows[1][key]
    for key in ("forward_ms", "backward_ms"):
        assert rows[0][key] == pytest.approx(rows[1][key], rel=1e-6)


def test_trace_of_another_tool(thalweg, tmp_path, messages):
    """A trace as Chakra's own generators write it."""
    node, note = messages["Node"], messages["AttributeProto"]
    cpu = note(name="is_cpu_op", bool_val=False)
    work = node(id=0, name="COMP_NODE", type=4, duration_micros=2500, attr=[cpu])
    total = node(id=1, name="ALL_REDUCE", type=7, data_deps=[0],
                 attr=[cpu, note(name="comm_type", int64_val=0), note(name="comm_size", uint64_val=65536)])
    file = tmp_path / "other.et"
    file.write_bytes(framed(messages["GlobalMetadata"](version="0.0.4"), work, total))
    found = play(file)
    assert found["bucket_bytes"] == [65536] and found["backward_ms"] == 2.5 and found["rows"][0]["p50_ms"] > 2.5
    total.attr[1].int64_val = 2
    file.write_bytes(framed(messages["GlobalMetadata"](version="0.0.4"), work, total))
    done = thalweg("bench", "step", "--model", file)
    assert done.code == 2 and "other.et: node 1: comm_type: ALL_GATHER" in done.err


def test_timeline__becomes_a_trace(thalweg, tmp_path, messages):
    run = subprocess.run([PROGRAM, "run", "-n", "2", "--", ROOT / "build/release/examples/allreduce", "1000"],
                         cwd=tmp_path, capture_output=True, text=True, timeout=120,
                         env=os.environ | {"THALWEG_TIMELINE": "run.json"})
    assert run.returncode == 0, run.stdout + run.stderr
    files = [tmp_path / f"run.{rank}.json" for rank in range(2)]
    text = export(thalweg, tmp_path / "traces", *files)
    for rank in range(2):
        calls = [event for event in json.loads(files[rank].read_text())["traceEvents"] if "call" in event["args"]]
        _, nodes = parse(tmp_path / f"traces/timeline.{rank}.et", messages)
        sums = [node for node in nodes if node.type == TYPES.index("COMM_COLL_NODE")]
        assert len(sums) == len(calls) > 0 and f"rank {rank}, {len(calls)} collectives, 0 other calls left out, 0 iterations" in text
        ids = set()
        for made in nodes:  # every dependency comes before
            assert set(made.data_deps) <= ids
            ids.add(made.id)
        start = {int(call["ts"] + 0.5) for call in calls}
        assert {made.start_time_micros for made in sums} == start
        assert sorted(attribute(made, "comm_size") for made in sums) == sorted(c["args"]["bytes"] for c in calls)


@pytest.mark.parametrize("arguments,words", [
    ((), ["--model"]),
    (("--model", "resnet19"), ["resnet19", "resnet18"]),
    (("--model", "resnet18", "--ranks", 0), ["--ranks", "0", "from 1"]),
    (("--model", "resnet18", "--schedule", "random"), ["--schedule", "random", "layerwise"]),
    (("--model", "resnet18", "--bucket", "0B"), ["--bucket", "above 0"]),
    (("--model", "resnet18", "README.md"), ["either", "--model"]),
    (("README.md",), ["README.md", "no timeline"]),
    (("missing.json",), ["missing.json"]),
])
def test_bad_input_is_named(thalweg, tmp_path, arguments, words):
    done = thalweg("trace", "chakra", *arguments, "--out", tmp_path / "traces")
    assert done.code == 2 and done.out == "", done.err
    assert all(word in done.err for word in words), done.err
    assert not (tmp_path / "traces").exists()


def test_bad_traces_are_named(thalweg, tmp_path):
    broken = tmp_path / "broken.et"
    broken.write_bytes(b"\x02\x0a")
    done = thalweg("bench", "step", "--model", broken)
    assert done.code == 2 and "broken.et: the metadata: it is longer than what is left of the file" in done.err
    export(thalweg, tmp_path, "--model", "digits-cnn")
    done = thalweg("bench", "step", "--model", tmp_path / "digits-cnn.0.et", "--bucket", "1MiB")
    assert done.code == 2 and "--bucket: a Chakra trace has buckets of its own" in done.err
    assert thalweg("bench", "step", "--model", tmp_path / "none.et").code == 2
