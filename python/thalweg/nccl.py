"""NCCL's net plugin that this package holds (docs/nccl.md).

    export NCCL_NET_PLUGIN=$(python -m thalweg.nccl)

or, in a program, before NCCL makes its first communicator:

    os.environ["NCCL_NET_PLUGIN"] = thalweg.nccl.plugin()
"""
from pathlib import Path

__all__ = ["plugin"]

LIBRARY = "libnccl-net-thalweg.so"
# NCCL keeps the value of NCCL_NET_PLUGIN in 255 bytes, and cuts a longer one.
MOST_BYTES = 254


def plugin() -> str:
    """Finds the plugin that is installed with this package, or that of the checkout that holds it.

    Returns
    -------
    str
        The absolute path of the library, for NCCL_NET_PLUGIN. NCCL 2.20.5 and later take a path.

    Raises
    ------
    FileNotFoundError
        There is no plugin: only a wheel has it, and a checkout after `make build`.
    ValueError
        The path is too long for NCCL.
    """
    here = Path(__file__).resolve()
    places = [here.with_name(LIBRARY), here.parents[2] / "build/release" / LIBRARY]
    found = next((str(place) for place in places if place.is_file()), None)
    if found is None:
        raise FileNotFoundError(f"{LIBRARY} is not installed: a wheel has it (make wheel), and so has a checkout after "
                                "`make build`")
    if len(found.encode()) > MOST_BYTES:
        raise ValueError(f"{found} has {len(found.encode())} bytes; NCCL takes paths of at most {MOST_BYTES}")
    return found


if __name__ == "__main__":
    try:
        print(plugin())
    except (FileNotFoundError, ValueError) as error:
        raise SystemExit(f"thalweg.nccl: {error}") from None
