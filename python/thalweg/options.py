"""What a process group may be told: dist.init_process_group("thalweg", pg_options=thalweg.Options(…))."""
import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Options:
    """The same on all ranks of the group."""

    # How calls go: "tcp" (and shared memory within a host), "dlcp", or allreduces by sum or mean over a switch that sums:
    # "atp" all of them (without a switch the ranks add up; one that refuses is an error), "auto" those that are expected to
    # be faster so, and everything over tcp if there is no switch or it refuses. Only what is asked for in thalweg.torch loses
    # anything; a switch sums floats in fixed point (docs/switch.md).
    transport: str = "tcp"
    # Which plan runs, as `thalweg plan` takes it ("ring", "rat:trees=4"). Empty: by the size of the tensor.
    scheme: str = ""
    # The network as `--topology` takes it: a shorthand, or the path of a YAML file, which every rank reads (or its text);
    # rank i is host i. Empty: all hosts on one switch.
    topology: str = ""
    # Of the link, for DLCP. 0: what the network interface says.
    line_rate_gbps: float = 0.0
    # "host:port" of the switch's control socket, for "atp" and "auto". Empty: THALWEG_SWITCH, and without that none.
    switch_address: str = ""

    def __post_init__(self):
        if self.transport not in ("tcp", "dlcp", "atp", "auto"):
            raise ValueError(f"transport: {self.transport!r}; 'tcp', 'dlcp', 'atp' and 'auto' are allowed")
        if self.switch_address and not self.by_switch:
            raise ValueError(f"switch_address: {self.switch_address!r}; it is for the transports 'atp' and 'auto'")
        if not self.line_rate_gbps >= 0:
            raise ValueError(f"line_rate_gbps: {self.line_rate_gbps}; 0 or more is allowed")

    def topology_text(self):
        """`topology` as the communicator takes it: a shorthand or the text of a YAML file."""
        given = self.topology
        if "\n" in given or "{" in given:
            return given if "\n" in given else given + "\n"
        try:
            if not (given.endswith((".yaml", ".yml")) or "/" in given or pathlib.Path(given).is_file()):
                return given
            return pathlib.Path(given).read_text(encoding="utf-8") + "\n"
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"topology: {given!r}: {error}; a YAML file that every rank can read, or a shorthand such as "
                             "'leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G' is allowed") from error

    @property
    def by_switch(self):
        """A switch is to sum."""
        return self.transport in ("atp", "auto")
