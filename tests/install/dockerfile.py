#!/usr/bin/env python3
"""Runs the steps of a Dockerfile without a builder: every stage is a copy of a Debian 12 that debootstrap made, and RUN is a
command in it by chroot. It needs root.

    dockerfile.py FOLDER [--take STAGE=/path/in/it=FOLDER] [--run COMMAND]…

FOLDER/debian is the base, which is made if it is not there, and FOLDER/STAGE a stage's copy of it; the last is called "image"
if it has no name. --take leaves a stage out: what later stages copy from that path of it comes from a folder of this machine.
Each --run is a command in the finished image, with its user, folder and variables. The mounts end with the program. Known: FROM, WORKDIR, COPY,
RUN, ENV, USER and CMD, as far as this project's Dockerfile uses them.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# How this machine reaches package indexes is no part of an image. Nothing of the machine can be written to in a chroot: a
# package's script that found the machine's /etc/ssl/certs there, for one, would put its own certificates into it. So folders are mounted
# read-only, files are copied, and /dev is a new one.
MOUNTED = ("/opt/wheels", "/opt/pypi", "/opt/pypi-more")
COPIED = ("/etc/resolv.conf", "/etc/hosts", "/root/.config/pip/pip.conf")
PASSED = ("http_proxy", "https_proxy", "no_proxy", "PIP_FIND_LINKS", "PIP_DEFAULT_TIMEOUT")
IN_CHROOT = """
set -e
root=$1 user=$2 folder=$3
shift 3
for place in MOUNTED; do
  [ -d "$place" ] || continue
  mkdir -p "$root$place"
  mount --bind "$place" "$root$place"
  mount -o remount,bind,ro "$root$place"
done
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 devices "$root/dev"
for device in null zero full random urandom tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/shm"
mount -t tmpfs -o mode=1777 memory "$root/dev/shm"
exec chroot --userspec="$user" "$root" /usr/bin/env -i "$@" /bin/sh -c 'cd "$0" && eval "$1"' "$folder" "$COMMAND"
""".replace("MOUNTED", " ".join(MOUNTED))


def steps_of(text):
    """The instructions of a Dockerfile with their words; lines that go on are joined."""
    joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    return [(line.split(None, 1)[0], line.split(None, 1)[1].strip()) for line in joined.splitlines() if line.strip()]


class Stage:
    """A root folder and what the next step finds: variables, user and working folder."""

    def __init__(self, root):
        self.root, self.user, self.folder = root, "0:0", "/"
        self.variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                          "DEBIAN_FRONTEND": "noninteractive"}

    def at(self, path):
        return self.root / os.path.join(self.folder, path).lstrip("/")

    def run(self, command):
        passed = {name: os.environ[name] for name in PASSED if name in os.environ}
        if "PIP_CERT" in os.environ:
            passed["PIP_CERT"] = "/certificates.crt"
        words = [f"{name}={value}" for name, value in {**self.variables, **passed}.items()]
        subprocess.run(["unshare", "--mount", "--propagation", "private", "bash", "-c", IN_CHROOT, "-", self.root, self.user,
                        self.folder, *words], check=True, env={**os.environ, "COMMAND": command})

    def copy(self, sources, target):
        """As COPY does: a folder's content, or a file, into a folder or under a name."""
        for source in sources:
            if source.is_dir():
                shutil.copytree(source, self.at(target), symlinks=True, dirs_exist_ok=True)
                continue
            place = self.at(target) / source.name if target.endswith("/") or target == "." else self.at(target)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place)


def debian(folder):
    """The base of all stages."""
    if not (folder / "finished").exists():
        shutil.rmtree(folder, ignore_errors=True)
        if shutil.which("debootstrap") is None:
            subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "debootstrap"], check=True,
                           stdout=subprocess.DEVNULL)
        subprocess.run(["debootstrap", "--variant=minbase", "bookworm", folder, "http://deb.debian.org/debian"], check=True,
                       stdout=subprocess.DEVNULL)
        (folder / "finished").touch()
    return folder


def sources_of_checkout(pattern, place):
    """Files of the checkout by COPY's first words: what git knows, since .dockerignore leaves out the rest."""
    if pattern != ".":
        return [ROOT / pattern]
    listed = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    shutil.rmtree(place, ignore_errors=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place / name)
    return [place]


def base_of(folder, name):
    root = folder / name
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(["cp", "-a", "--reflink=auto", debian(folder / "debian"), root], check=True)
    for path in COPIED:
        if Path(path).is_file():
            (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / path.lstrip("/"))
    if "PIP_CERT" in os.environ:
        shutil.copy(os.environ["PIP_CERT"], root / "certificates.crt")
    return Stage(root)


def build(text, folder, taken):
    """Runs all steps, and returns the last stage. `taken`: {stage: (path in it, folder of this machine)}."""
    stages, stage = {}, None
    for name, words in steps_of(text):
        if name == "FROM":
            called = words.split(" AS ")[1] if " AS " in words else "image"
            stage = None if called in taken else base_of(folder, called)
            stages[called] = stage
        if name == "FROM" or stage is None:
            continue
        print(f"dockerfile: {name} {words}", flush=True)
        if name == "RUN":
            stage.run(words)
        elif name == "WORKDIR":
            stage.folder = words
            stage.at(".").mkdir(parents=True, exist_ok=True)
        elif name == "ENV":
            key, value = words.split("=", 1)
            stage.variables[key] = re.sub(r"\$(\w+)", lambda found: stage.variables[found.group(1)], value)
        elif name == "USER":
            stage.user = f"{words}:{words}"
        elif name == "COPY" and words.startswith("--from="):
            of, source, target = words.removeprefix("--from=").split()
            if of in taken and taken[of][0] != source.rstrip("/"):
                raise SystemExit(f"dockerfile: {source} of stage {of} was not given by --take")
            stage.copy([taken[of][1] if of in taken else stages[of].at(source)], target)
        elif name == "COPY":
            *sources, target = words.split()
            stage.copy([file for source in sources for file in sources_of_checkout(source, folder / "checkout")], target)
        elif name != "CMD":
            raise SystemExit(f"dockerfile: {name}: unknown")
    return stage


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--take", action="append", default=[], metavar="STAGE=PATH=FOLDER")
    parser.add_argument("--run", action="append", default=[], metavar="COMMAND")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("dockerfile: chroot and mounts need root")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    taken = {stage: (path.rstrip("/"), Path(folder))
             for stage, path, folder in (one.split("=", 2) for one in arguments.take)}
    try:
        image = build((ROOT / "Dockerfile").read_text(), arguments.folder.resolve(), taken)
        image.variables["HOME"] = "/home/thalweg"
        for command in arguments.run:
            image.run(command)
    except subprocess.CalledProcessError as error:
        command = error.cmd if isinstance(error.cmd, str) else " ".join(map(str, error.cmd[-1:]))
        raise SystemExit(f"dockerfile: exit code {error.returncode}: {command}") from error


if __name__ == "__main__":
    sys.exit(main())
