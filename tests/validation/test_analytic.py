"""Cases whose result follows from arithmetic. Packets have 1460 bytes of payload and 40 of headers."""
import json

import pytest
from simulators import HEADER, PACKET, SEGMENT, run

FIRST_WINDOW = 10


def tx_us(size: int, gbps: float) -> float:
    return size * 8e-3 / gbps


def simulate(program, folder, scenario: dict) -> dict:
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(scenario))
    return json.loads(run([program, "sim", "run", path, "--json"]))


def completion_us(program, folder, topology, flows, network=None, transport="newreno") -> list[float]:
    """Of the flows, in the order in which they end."""
    table = folder / "flows.csv"
    path = folder / "scenario.yaml"
    path.write_text(json.dumps({"topology": topology, "transport": transport, "network": network or {},
                                "flows": flows}))
    run([program, "sim", "run", path, "--flows", table])
    header, *rows = table.read_text().splitlines()
    column = header.split(",").index("completion_us")
    return [float(row.split(",")[column]) for row in rows]


def one_flow_us(packets: int, gbps: float, delay_us: float, hops: int) -> float:
    """Slow start sends rounds of 10, 20, 40, … packets, one a round trip, each back to back, until a round
    takes longer than the round trip or is the last; the rest then leaves at line rate."""
    tx, ack = tx_us(PACKET, gbps), tx_us(HEADER, gbps)
    round_trip = hops * (tx + ack + 2 * delay_us)
    start, window = 0.0, FIRST_WINDOW
    while packets > window and window * tx < round_trip:
        packets -= window
        window *= 2
        start += round_trip
    return start + packets * tx + (hops - 1) * tx + hops * delay_us


@pytest.mark.parametrize("packets", [1, 10, 11, 30, 31, 100, 1000, 10_000])
@pytest.mark.parametrize("gbps,delay_us", [(1, 1), (10, 5), (100, 10)])
def test_one_flow(program, tmp_path, packets, gbps, delay_us):
    """Exact, but for times that are rounded to picoseconds and printed to microseconds with six decimals."""
    for topology, hops, target in (
            (f"single-switch:hosts=2,host={gbps}G,delay={delay_us}us", 2, "host1"),
            (f"leaf-spine:racks=2,hosts=1,spines=1,host={gbps}G,uplink={gbps}G,delay={delay_us}us", 4,
             "rack1-host0")):
        source = "host0" if hops == 2 else "rack0-host0"
        flows = [{"from": source, "to": target, "size": f"{packets * SEGMENT}B"}]
        [simulated] = completion_us(program, tmp_path, topology, flows)
        assert simulated == pytest.approx(one_flow_us(packets, gbps, delay_us, hops), rel=1e-6)


@pytest.mark.parametrize("transport,buffers,over", [
    # All that is sent waits, and no timer fires on that account.
    ({"kind": "newreno", "rto_min": "1s"}, {"port_buffer": "100MB"}, 0.001),
    # Marks hold the queue down, but never to idleness.
    ({"kind": "dctcp"}, {"port_buffer": "4MB", "mark_above": f"{65 * PACKET}B"}, 0.01),
])
@pytest.mark.parametrize("senders", [4, 16, 64])
def test_incast(program, tmp_path, senders, transport, buffers, over):
    """N senders of S bytes to one receiver: its link is busy from the first packet to the last, N·S/B."""
    gbps, delay_us, packets = 10, 1, 500
    flows = [{"from": f"host{i}", "to": "host0", "size": f"{packets * SEGMENT}B"} for i in range(1, senders + 1)]
    times = completion_us(program, tmp_path, f"single-switch:hosts={senders + 1},host={gbps}G,delay={delay_us}us",
                          flows, buffers, transport)
    tx = tx_us(PACKET, gbps)
    limit = senders * packets * tx + tx + 2 * delay_us
    assert len(times) == senders
    assert limit * (1 - 1e-6) <= max(times) <= limit * (1 + over)


@pytest.mark.parametrize("hosts", [2, 4, 8])
@pytest.mark.parametrize("packets", [200, 2000])  # of a step's chunk
def test_ring_allreduce(program, tmp_path, hosts, packets):
    """2(N−1) steps, each S/N bytes over two links: 2(N−1)/N·S/B and a step's latency, 2(N−1) times. Every host
    sends and receives at once, so that its link also carries an acknowledgement for each packet it gets; those
    that fall at the ends of a step, and the first window's waiting for them, are within 1 %."""
    gbps, delay_us = 10, 1
    elements = hosts * packets * SEGMENT // 4
    model = tmp_path / "one-layer.yaml"
    model.write_text(json.dumps({
        "name": "one-layer", "batch": 1, "dtype": "float32", "device": "none", "device_scale": 1,
        "layers": [{"name": "all", "params": elements, "tensors": [elements], "forward_us": 0, "backward_us": 0}]}))
    result = simulate(program, tmp_path, {
        "topology": f"single-switch:hosts={hosts},host={gbps}G,delay={delay_us}us", "transport": "newreno",
        "jobs": [{"model": str(model), "scheme": "ring", "overlap": "none"}]})
    [job] = result["jobs"]
    tx = tx_us(PACKET, gbps)
    latency = tx + 2 * delay_us
    simulated = job["iterations_ms"][0] * 1e3
    assert simulated >= 2 * (hosts - 1) * (packets * tx + latency)
    assert simulated == pytest.approx(2 * (hosts - 1) * (packets * (tx + tx_us(HEADER, gbps)) + latency), rel=0.01)
