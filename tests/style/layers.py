"""The layering and the purity of the tree, as functions that return what is wrong."""
import re
import subprocess
from pathlib import Path

# A layer may include the layers named here, itself, and the public headers. DESIGN.md draws it.
BELOW = {
    "base": set(),
    "trace": {"base"},
    "wire": {"base"},
    "tensor": {"base"},
    "proto": {"base", "trace", "wire", "tensor"},
    "net": {"base", "trace", "wire", "tensor", "proto", "topology", "plan", "exec"},
    "capi": {"base", "net"},
    "nccl": {"base", "wire", "net"},
    "topology": {"base"},
    "tune": {"base", "tensor", "topology"},
    "plan": {"topology", "base"},
    "sync": {"base", "topology", "plan"},
    "exec": {"base", "tensor", "topology", "plan"},
    "switch": {"base", "wire"},
    "sim": {"base", "trace", "wire", "tensor", "proto", "topology", "plan", "sync", "exec", "switch"},
    "ps": {"base", "wire", "tensor", "topology", "net"},
    "switchd": {"base", "wire", "tensor", "topology", "switch", "net"},
    "launch": {"base", "wire", "topology", "net"},
    "lab": {"base", "trace", "wire", "tensor", "proto", "net", "topology", "tune", "plan", "sync", "exec", "switch",
            "sim", "switchd", "launch"},
    "cli": {"base", "trace", "wire", "tensor", "proto", "net", "topology", "tune", "plan", "sync", "exec", "switch",
            "sim", "switchd", "ps", "launch", "lab"},
}
PURE = ["base", "trace", "wire", "tensor", "proto", "topology", "tune", "plan", "sync", "exec", "switch", "sim"]

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def layering_violations(root: Path) -> list[str]:
    """Every include in src/ and include/ that goes against the arrows."""
    found = []
    for folder, own in [(root / "src", None), (root / "include", "include")]:
        for path in sorted(folder.rglob("*")):
            if path.suffix not in {".h", ".cc"} or path.name.endswith(".bpf.h"):  # C for the kernel
                continue
            layer = own or path.relative_to(folder).parts[0]
            allowed = BELOW.get(layer)
            name = path.relative_to(root)
            if own is None and allowed is None:
                found.append(f"{name}: '{layer}' is not a layer that tests/style/layers.py knows")
                continue
            for included in INCLUDE.findall(path.read_text()):
                target = included.split("/")[0]
                if own or target not in allowed | {layer}:
                    found.append(f"{name}: {layer} must not include {included}")
    return found


# Undefined symbols that a pure layer must not have: what they are, and how they look in nm.
IMPURE = {
    "sockets": r"^(socket|connect|bind|listen|accept4?|send(to|msg|mmsg)?|recv(from|msg|mmsg)?|"
               r"poll|epoll_\w+|select)$",
    "clocks": r"^(clock_gettime|gettimeofday|time|clock|nanosleep|usleep|sleep)$|"
              r"^_ZNSt6chrono.*3nowEv$",
    "threads": r"^(pthread_create|pthread_mutex_lock|fork|vfork|execv\w*|posix_spawn\w*)$|"
               r"^_ZNSt6thread|^_ZNSt5mutex|^_ZNSt18condition_variable",
    "files": r"^(f?open(64|at)?|creat|fopen64|freopen|read|write|unlink|mmap(64)?)$|"
             r"basic_[io]?fstream|basic_filebuf|_ZNSt10filesystem",
    "random sources": r"^(s?rand(om)?(_r)?|[dlm]rand48|getrandom|getentropy|arc4random)$|"
                      r"^_ZNSt13random_device",
    "the environment": r"^(secure_)?getenv$|^environ$",
    "standard streams": r"^_ZSt[34](cin|cout|cerr|clog)$",
}


def impure_symbols(archive: Path) -> list[str]:
    """Every undefined symbol of a library through which it could see the outside world."""
    lines = subprocess.run(["nm", "-A", "-u", archive], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    found = []
    for line in lines:
        symbol = line.split()[-1].split("@")[0]
        for what, pattern in IMPURE.items():
            if re.search(pattern, symbol):
                found.append(f"{line.split(' ')[0]} uses {what}: {symbol}")
    return found
