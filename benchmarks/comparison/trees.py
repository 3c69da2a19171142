"""The source of a previous release in a folder, which can run in this virtual environment."""

import configparser
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BENCHMARKS = ROOT / "benchmarks"


@contextmanager
def checked_out(ref: str, *, own_benchmarks: bool = False) -> Iterator[Path]:
    """Yield a folder with climate at the git reference ``ref``, and the benchmarks of now.

    With ``own_benchmarks``, the folder has the benchmarks of ``ref``. Raises SystemExit if there is
    no such reference.
    """
    with tempfile.TemporaryDirectory(prefix="climate-comparison-") as name:
        folder = Path(name)
        _extract(ref, folder)
        if not own_benchmarks:
            shutil.rmtree(folder / "benchmarks")
            shutil.copytree(_BENCHMARKS, folder / "benchmarks")
        _write_metadata(folder)
        yield folder


def describe(ref: str) -> str:
    """Return the short hash of a commit, with a mark if the checkout has changes."""
    command = ["git", "describe", "--always", "--exclude=*", *([ref] if ref else ["--dirty=+"])]
    return subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def _extract(ref: str, folder: Path) -> None:
    command = ["git", "archive", ref, "climate", "benchmarks", "setup.cfg"]
    archive = subprocess.run(command, cwd=ROOT, check=False, capture_output=True)
    if archive.returncode:
        raise SystemExit(f"--against {ref}: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")


def _write_metadata(folder: Path) -> None:
    """Write the entry points of the release, which has plug-ins that this checkout may lack."""
    setup = configparser.ConfigParser()
    setup.read(folder / "setup.cfg")
    metadata = folder / "climate.egg-info"
    metadata.mkdir()
    header = f"Metadata-Version: 2.1\nName: climate\nVersion: {version('climate')}\n"
    (metadata / "PKG-INFO").write_text(header)
    points = setup["options.entry_points"].items()
    text = "\n".join(f"[{group}]{lines}\n" for group, lines in points)
    (metadata / "entry_points.txt").write_text(text)
