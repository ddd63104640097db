"""`thalweg bench` with tiny sizes, so that it never rots. `make bench` measures speeds; this may run on a busy machine."""


def test_kernels(thalweg):
    result = thalweg("bench", "kernels", "--json", "--size", "1MiB", "--seconds", "0.1").json()
    assert result["memcpy_gbps"] > 0
    kernels = {(k["dtype"], k["op"]): k for k in result["kernels"]}
    assert len(kernels) == 10 * 5 + 6 + 1 + 3 + 3 * 3
    assert {("bfloat16", "tag"), ("float8_e4m3fn", "sum"), ("float8_e5m2", "tag"), ("float32", "tag (segments)"),
            ("packets", "authenticate"), ("packets", "authenticate by OpenSSL"), ("packets", "checksum"), ("bfloat16", "exponents"),
            ("float16", "to fixed point"), ("float32", "from fixed point")} <= kernels.keys()
    for kernel in kernels.values():
        assert kernel["gbps"] > 0
        assert abs(kernel["ratio"] - kernel["gbps"] / result["memcpy_gbps"]) < 0.02 * kernel["ratio"]


def test_kernels_bad_flags(thalweg):
    for flags, word in ([("--size", "12"), "size"], [("--size", "0B"), "size"],
                        [("--seconds", "0"), "seconds"], [("--seconds", "-1"), "seconds"]):
        done = thalweg("bench", "kernels", *flags)
        assert done.code == 2, flags
        assert word in done.err


SMALL = ("--topology", "leaf-spine:racks=2,hosts=4,spines=2,host=10G,uplink=10G", "--flow-size",
         "100kB", "--rounds", "1", "--until", "5ms", "--turns", "1")


def test_sim(thalweg):
    result = thalweg("bench", "sim", *SMALL, "--no-ns3", "--json").json()
    # 8 flows of 69 packets over 2 or 4 links, and as many acknowledgements back.
    assert 8 * 69 * 2 * 2 <= result["packet_hops"] <= 8 * 69 * 4 * 2 + 1000
    assert result["packet_hops_per_s"] > 0
    # There are no results of ns-3 if it did not run.
    assert result["ratio"] is result["ns3_packet_hops_per_s"] is None
    assert "--no-ns3" in result["no_ns3"]


def test_sim_against_ns3(thalweg):
    """Both simulate the same network, so they agree on the number of packets that cross links."""
    result = thalweg("bench", "sim", *SMALL, "--json").json()
    assert abs(result["ns3_packet_hops"] / result["packet_hops"] - 1) < 0.02
    assert result["ns3_packet_hops_per_s"] > 0
    assert abs(result["ratio"] - result["packet_hops_per_s"] / result["ns3_packet_hops_per_s"]) < 1e-6 * result["ratio"]
    assert "ratio" in thalweg("bench", "sim", *SMALL).out


def test_sim_same_seed_same_run(thalweg):
    def run(seed):
        result = thalweg("bench", "sim", *SMALL, "--no-ns3", "--seed", seed, "--json").json()
        return result["packet_hops"], result["events"], result["drops"], result["marks"]

    assert run(1) == run(1)
    assert len({run(seed) for seed in range(6)}) > 1


def test_sim_bad_flags(thalweg):
    for flags, word in ([("--flow-size", "0B"), "flow-size"], [("--rounds", "0"), "rounds"],
                        [("--until", "5"), "until"], [("--turns", "0"), "turns"],
                        [("--ns3", "/no/such/peer"), "make ns3"],
                        [("--topology", "single-switch:hosts=1"), "two hosts"]):
        done = thalweg("bench", "sim", *flags)
        assert done.code == 2, flags
        assert word in done.err
