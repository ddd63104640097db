"""What a process group may be told: dist.init_process_group("thalweg", pg_options=thalweg.Options(…))."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Options:
    """The same on all ranks of the group."""

    # How calls go: "tcp" (and shared memory within a host), "dlcp", or "atp": allreduces by sum and mean over the switch
    # that THALWEG_SWITCH names (docs/switch.md), floating-point ones in fixed point, all else by TCP. Nothing is lost
    # but what is asked for in thalweg.torch.
    transport: str = "tcp"
    # Which plan runs, as `thalweg plan` takes it ("ring", "rat:trees=4"). Empty: by the size of the tensor.
    scheme: str = ""
    # The network, as `--topology` takes it; rank i is host i. Empty: all hosts on one switch.
    topology: str = ""
    # Of the link, for DLCP. 0: what the network interface says.
    line_rate_gbps: float = 0.0

    def __post_init__(self):
        if self.transport not in ("tcp", "dlcp", "atp"):
            raise ValueError(f"transport: {self.transport!r}; 'tcp', 'dlcp' and 'atp' are allowed")
        if not self.line_rate_gbps >= 0:
            raise ValueError(f"line_rate_gbps: {self.line_rate_gbps}; 0 or more is allowed")
