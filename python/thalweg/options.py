"""Options of a process group: dist.init_process_group("thalweg", pg_options=thalweg.Options(…))."""
import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a process group. All of its ranks must give the same ones.

    Every transport delivers every contribution; only a loss bound (thalweg.torch) allows losses. A
    switch sums floats in fixed point (docs/switch.md).

    Parameters
    ----------
    transport
        How the group's calls travel. "tcp": TCP between hosts, and shared memory within a host.
        "dlcp": DLCP, exactly. "atp": allreduces by sum or mean go through a switch that sums, and
        other calls use TCP; without a switch the ranks add up themselves, and a switch that refuses
        is an error. "auto": the fastest of several ways, found by trials among the first steps:
        the schemes over TCP, DLCP between hosts, and a switch if there is one.
        thalweg.torch.auto_choices() says what was chosen (docs/collectives.md).
    scheme
        Which plan runs, as `thalweg plan` takes it ("ring", "rat:trees=4"). Empty: the size of the
        tensor decides.
    topology
        The network, as `--topology` takes it: a shorthand, the path of a YAML file that every rank
        can read, or the text of one. Rank i is host i. Empty: all hosts are on one switch.
    line_rate_gbps
        Rate of a host's link, for DLCP. 0: what the network interface reports.
    switch_address
        "host:port" of the switch's control socket, for "atp" and "auto"; or a list of switches of
        `topology`, as in "leaf0=10.0.0.1:7700,leaf1=10.0.1.1:7700", or the path of a file with such
        lines (docs/switch.md). Empty: the environment variable THALWEG_SWITCH; no switch if that is
        not set either.
    auto
        True: the same as the transport "auto".

    Raises
    ------
    ValueError
        A value is not allowed, or two options contradict each other.
    """

    transport: str = "tcp"
    scheme: str = ""
    topology: str = ""
    line_rate_gbps: float = 0.0
    switch_address: str = ""
    auto: bool = False

    def __post_init__(self):
        if self.transport not in ("tcp", "dlcp", "atp", "auto"):
            raise ValueError(f"transport: {self.transport!r}; "
                             "'tcp', 'dlcp', 'atp' and 'auto' are allowed")
        if self.auto and self.transport not in ("tcp", "auto"):
            raise ValueError(f"auto: True with the transport {self.transport!r}: auto chooses the "
                             "transport, so leave one of them out")
        if self.auto and self.scheme:
            raise ValueError(f"auto: True with the scheme {self.scheme!r}: auto chooses the scheme, "
                             "so leave one of them out")
        if self.auto:
            object.__setattr__(self, "transport", "auto")
        if self.switch_address and not self.by_switch:
            raise ValueError(f"switch_address: {self.switch_address!r}; "
                             "it is for the transports 'atp' and 'auto'")
        if not self.line_rate_gbps >= 0:
            raise ValueError(f"line_rate_gbps: {self.line_rate_gbps}; 0 or more is allowed")

    def topology_text(self):
        """Reads `topology` as the communicator takes it.

        Returns
        -------
        str
            A shorthand, or a YAML file's text.

        Raises
        ------
        ValueError
            The file cannot be read.
        """
        given = self.topology
        if "\n" in given or "{" in given:
            return given if "\n" in given else given + "\n"
        try:
            if not (given.endswith((".yaml", ".yml")) or "/" in given
                    or pathlib.Path(given).is_file()):
                return given
            return pathlib.Path(given).read_text(encoding="utf-8") + "\n"
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(
                f"topology: {given!r}: {error}; a YAML file that every rank can read, or a "
                "shorthand such as 'leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G' is "
                "allowed") from error

    @property
    def by_switch(self):
        """Whether a switch may sum for this group."""
        return self.transport in ("atp", "auto")
