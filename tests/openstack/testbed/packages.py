"""Installation of OpenStack in its virtual environment, and of missing servers."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.openstack.testbed import layout
from tests.openstack.testbed.layout import Failure, Unreachable

_CONSTRAINTS = layout.SOURCE / "constraints.txt"
_INSIDE = layout.SOURCE / "inside"
_PIP: list[str | Path] = [
    layout.BIN / "python",
    "-m",
    "pip",
    "--disable-pip-version-check",
    "--no-color",
]
# What pip says when it got no answer, or none of use.
_NO_CONNECTION = re.compile("connection broken by|Could not fetch URL")
# The package of Debian that a command is in.
_DEBIAN = {
    "mariadb": "mariadb-client",
    "mariadb-dump": "mariadb-client",
    "mariadbd": "mariadb-server",
    "rabbitmq-server": "rabbitmq-server",
    "memcached": "memcached",
}


def install_openstack() -> None:
    """Install OpenStack, unless these lists are installed already."""
    installed = layout.VENV / ".installed"
    if installed.exists() and installed.read_text() == _fingerprint():
        return
    # venv puts pip there last, so that one which was interrupted is made again.
    if not (layout.BIN / "pip").exists():
        subprocess.run([sys.executable, "-m", "venv", layout.VENV], check=True)
    _expect_registry()
    log = layout.LOG / "pip.log"
    with tempfile.TemporaryDirectory() as scratch:
        # pip builds where the source is, which would leave things there.
        inside = shutil.copytree(_INSIDE, Path(scratch) / "inside")
        lists: list[str | Path] = [part for path in _lists() for part in ("--requirement", path)]
        command = [*_PIP, "install", "--constraint", _CONSTRAINTS, *lists, inside]
        if not runs(command, log):
            _expect_registry()
            raise Failure(f"pip failed; {layout.end_of(log)}")
    installed.write_text(_fingerprint())


def install_over(venv: Path, requirements: Path) -> None:
    """Install packages in an environment over that of the services, which stays as it is.

    Do nothing if they are installed already. Raises Unreachable if the registry does not answer.
    """
    done, wanted = venv / ".installed", requirements.read_text()
    if done.exists() and done.read_text() == wanted:
        return
    _expect_registry()
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (below,) = layout.VENV.glob("lib/python*/site-packages")
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "testbed.pth").write_text(f"{below}\n")
    log = layout.LOG / f"pip-{requirements.stem}.log"
    pip: list[str | Path] = [
        venv / "bin" / "python",
        *_PIP[1:],
        "install",
        "--constraint",
        _CONSTRAINTS,
    ]
    if not runs([*pip, "--requirement", requirements], log):
        _expect_registry()
        raise Failure(f"pip failed; {layout.end_of(log)}")
    done.write_text(wanted)


def need(*commands: str) -> None:
    """Install the Debian packages of missing commands."""
    path = layout.environment()["PATH"]
    missing = sorted({_DEBIAN[name] for name in commands if not shutil.which(name, path=path)})
    if not missing:
        return
    if os.geteuid() or not shutil.which("apt-get"):
        raise Failure(f"install these first, or run this as root on Debian: {' '.join(missing)}")
    log = layout.LOG / "apt.log"
    # One repository out of order need not matter, so this is judged by what comes next.
    updated = runs(["apt-get", "update", "--option", "APT::Update::Error-Mode=any"], log)
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    if not runs(install, log):
        reason = f"apt-get cannot install {' '.join(missing)}"
        if updated:
            raise Failure(f"{reason}; {layout.end_of(log)}")
        raise Unreachable(f"{reason}, and had no up-to-date list of packages; see {log}")


def _lists() -> list[Path]:
    blazar = [layout.SOURCE / "requirements-blazar.txt"] if layout.WITH_BLAZAR else []
    return [layout.SOURCE / "requirements.txt", *blazar]


def _fingerprint() -> str:
    """Return a value that changes with the packages to install."""
    sources = [_CONSTRAINTS, *_lists(), *sorted(_INSIDE.rglob("*.*"))]
    parts = [path.read_bytes() for path in sources if path.suffix in {".txt", ".py", ".toml"}]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _expect_registry() -> None:
    """Raise Unreachable if pip cannot download a small package."""
    log = layout.LOG / "pip-registry.log"
    with tempfile.TemporaryDirectory() as scratch:
        # Impatient, as pip would otherwise try for a quarter of an hour.
        options = ["--no-deps", "--no-cache-dir", "--retries", "1", "--timeout", "15"]
        if runs([*_PIP, "download", *options, "--dest", scratch, "pymemcache"], log):
            return
    if _NO_CONNECTION.search(log.read_text()):
        raise Unreachable(f"pip cannot reach its package registry; see {log}")
    raise Failure(f"pip failed; {layout.end_of(log)}")


def runs(command: Sequence[str | Path], log: Path) -> bool:
    environment = layout.environment(DEBIAN_FRONTEND="noninteractive")
    with log.open("wb") as output:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
    return done.returncode == 0
