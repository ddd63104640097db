"""Which licences the libraries have that a program or module is linked to, by Debian's own records."""
import functools
import re
import subprocess
from pathlib import Path

DOC = Path("/usr/share/doc")

# Packages whose copyright file names the GPL for something other than Debian's packaging, and why a program that is
# linked to their libraries is still not under the GPL. Every other package that names it is refused.
ALLOWED = {
    "libc6": "the library is LGPL-2.1+; only programs and tests of its source are GPL-2+",
    "libgcc-s1": "GPL-3+ with the GCC Runtime Library Exception",
    "libstdc++6": "GPL-3+ with the GCC Runtime Library Exception",
    "libgfortran5": "GPL-3+ with the GCC Runtime Library Exception",
    "libquadmath0": "the library is LGPL-2.1+; the compilers of the same source are GPL-3+",
    "libbpf1": "the library is LGPL-2.1 or BSD-2-Clause; GPL-2 are a script of its documentation and, with the "
               "syscall note, the kernel's headers",
    "libelf1": "the library is LGPL-3+ or GPL-2+; only the programs of its source are GPL-3+",
    "libudev1": "the library is LGPL-2.1+; only the programs of systemd's source are GPL-2+",
    "libhwloc15": "the library is BSD-3-Clause; only Debian's packaging is GPL-3",
    "libevent-core-2.1-7": "the library is BSD-3-Clause; only files of its build are GPL",
    "libevent-pthreads-2.1-7": "the library is BSD-3-Clause; only files of its build are GPL",
}

# The packages whose archives, or the same sources, are linked into a wheel (cmake/ThalwegStandalone.cmake), where no ldd sees
# them, and those whose headers are compiled in. tools/wheel puts their notices into it.
IN_A_WHEEL = {
    "libfmt.a": "libfmt-dev", "libyaml-cpp.a": "libyaml-cpp-dev", "libhwy.a": "libhwy-dev", "libisal.a": "libisal-dev",
    "libClp.a": "coinor-libclp-dev", "libCoinUtils.a": "coinor-libcoinutils-dev", "libpugixml.a": "libpugixml-dev",
    "libcrypto.a": "libssl-dev", "libbpf.a": "libbpf-dev", "libelf.a": "libelf-dev", "libz.a": "zlib1g-dev",
}
HEADERS_IN_A_WHEEL = {"nlohmann-json3-dev", "libcli11-dev", "libeigen3-dev"}
# The same reasons as for what these packages bring when a program runs.
ALLOWED |= {"libbpf-dev": ALLOWED["libbpf1"], "libelf-dev": ALLOWED["libelf1"]}

# Libraries that no Debian package brings, by name, and their licence. What they link in turn is theirs.
NOT_OF_DEBIAN = {
    r"libc10(_cuda)?\.so|libtorch(_cpu|_cuda|_python)?\.so": "PyTorch: BSD-3-Clause, with parts under other permissive licences",
}

# The GPL and the AGPL, but not the LGPL.
NAMES_GPL = re.compile(r"(?<!L)GPL|GNU (Affero )?General Public License", re.IGNORECASE)


def linked_libraries(binary: Path) -> list[tuple[str, Path | None]]:
    """Every library that a program or module needs, also through others: name, and file if there is one."""
    lines = subprocess.run(["ldd", binary], check=True, capture_output=True, text=True).stdout.splitlines()
    found = []
    for line in lines:
        name, arrow, rest = line.strip().partition(" => ")
        if arrow:
            file = rest.split(" (")[0]
            found.append((name, Path(file) if file.startswith("/") else None))
        elif name.startswith("/"):  # the loader, which is libc6's
            file = Path(name.split(" (")[0])
            found.append((file.name, file))
    return found


@functools.cache  # dpkg reads the lists of all packages each time
def package_of(file: Path) -> str | None:
    """The Debian package that holds a file. A package may name it by its path before /lib became a link to /usr/lib."""
    real = str(file.resolve())
    for path in (real, real.removeprefix("/usr")):
        answer = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True)
        if answer.returncode == 0:
            return answer.stdout.split(":")[0]
    return None


def names_gpl(copyright_text: str) -> bool:
    """Whether a copyright file names the GPL for anything that is not Debian's packaging.

    Where the file is in Debian's machine-readable form, its "Files:" paragraphs are read; a paragraph that gives the
    choice of a licence other than the GPL does not count. In any other form every mention counts.
    """
    paragraphs = re.split(r"\n\s*\n", copyright_text)
    files = [dict(re.findall(r"^([\w-]+):[ \t]*((?:.|\n[ \t])*)", p, re.MULTILINE))
             for p in paragraphs if p.startswith("Files:")]
    if not files or not all(field.get("License") for field in files):
        return NAMES_GPL.search(copyright_text) is not None
    for field in files:
        if all(path.startswith("debian/") for path in field["Files"].split()):
            continue
        choices = re.split(r"\s+or\s+|\s*\|\s*", field["License"].splitlines()[0], flags=re.IGNORECASE)
        if all(NAMES_GPL.search(choice) for choice in choices):
            return True
    return False


def package_violations(package: str, allowed: dict[str, str] = ALLOWED, doc: Path = DOC) -> list[str]:
    """Why a package may not be linked; nothing if it may."""
    record = doc / package / "copyright"
    if not record.exists():
        return [f"{package}: {record} is missing, so its licence is not known"]
    if package not in allowed and names_gpl(record.read_text(errors="replace")):
        return [f"{package}: {record} names the GPL, and tests/style/licenses.py gives no reason why the library may be linked"]
    return []


def archives_of(standalone: str) -> set[str]:
    """The archives that cmake/ThalwegStandalone.cmake names."""
    return set(re.findall(r"lib[\w+-]+\.a\b", standalone))


def gpl_violations(binary: Path, allowed: dict[str, str] = ALLOWED, doc: Path = DOC) -> list[str]:
    """Every library of a program or module that is under the GPL, or whose licence is not known."""
    found = []
    for name, file in linked_libraries(binary):
        if name.startswith("linux-vdso") or any(re.fullmatch(pattern, name) for pattern in NOT_OF_DEBIAN):
            continue
        package = package_of(file) if file else None
        if package is None:
            found.append(f"{binary.name}: {name}: no Debian package holds it, so its licence is not known")
            continue
        found += [f"{binary.name}: {name} of {why}" for why in package_violations(package, allowed, doc)]
    return found


def packages_of(binary: Path) -> set[str]:
    """The Debian packages that a program or module needs to run."""
    return {package_of(file) for _, file in linked_libraries(binary) if file} - {None}
