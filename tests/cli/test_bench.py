"""`thalweg bench`, tiny, so that it never rots. Speeds are for `make bench`, not for a busy CI."""


def test_kernels(thalweg):
    result = thalweg("bench", "kernels", "--json", "--size", "1MiB", "--seconds", "0.1").json()
    assert result["memcpy_gbps"] > 0
    kernels = {(k["dtype"], k["op"]): k for k in result["kernels"]}
    assert len(kernels) == 8 * 5
    for kernel in kernels.values():
        assert kernel["gbps"] > 0
        assert abs(kernel["ratio"] - kernel["gbps"] / result["memcpy_gbps"]) < 0.02 * kernel["ratio"]


def test_kernels_bad_flags(thalweg):
    for flags, word in ([("--size", "12"), "size"], [("--size", "0B"), "size"],
                        [("--seconds", "0"), "seconds"], [("--seconds", "-1"), "seconds"]):
        done = thalweg("bench", "kernels", *flags)
        assert done.code == 2, flags
        assert word in done.err
