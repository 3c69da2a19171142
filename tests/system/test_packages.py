"""The wheel, built from the source distribution, works outside the repository.

The test builds and installs as users do, so it downloads what setup.cfg requires. With
CLIMATE_TEST_PYTHON, it installs into an environment of another Python, such as python3.13.
"""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin

import pytest
import requests

from tests.support.process import DEADLINE, Service, environment, eventually, free_port
from tests.support.service import hosts

pytestmark = pytest.mark.timeout(600)  # downloads, on a machine that other tests use

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("CLIMATE_TEST_PYTHON", sys.executable)


def run(*command: object, cwd: Path) -> str:
    """Run a command without the caller's settings; return its output."""
    words = list(map(str, command))
    given = {name: text for name, text in environment(cwd).items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=cwd, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution from the repository, and the wheel from that."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("climate-*.whl")
    (source,) = folder.glob("climate-*.tar.gz")
    assert source.name.startswith(built.name.partition("-py3-")[0])
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an empty environment; return the folder of its programs."""
    folder = tmp_path_factory.mktemp("installed")
    run(PYTHON, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv/bin/python"
    constraints = ROOT / "constraints.txt"
    run(python, "-m", "pip", "install", "--constraint", constraints, wheel, cwd=folder)
    return python.parent


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    files = {path for path in (ROOT / "climate").rglob("*.*") if "__pycache__" not in path.parts}
    listed = {str(path.relative_to(ROOT)) for path in files if path.is_file()}
    assert "climate/db/migrations/script.py.mako" in listed
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert listed - packed == set()
    data = {name.partition(".data/data/")[2] for name in packed if ".data/data/" in name}
    assert {
        "share/climate/etc/climate.conf.sample",
        "share/climate/etc/nodes.toml.sample",
        "share/climate/heat/climate_lease.py",
        "share/climate/systemd/climate-api.service",
    } <= data


@contextmanager
def service(programs: Path, home: Path) -> Iterator[Service]:
    """Run climate-standalone on a free port, with its database in ``home``."""
    serving = Service(free_port())
    arguments = ("--port", str(serving.port), "--database", f"sqlite:///{home}/c.sqlite")
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [programs / "climate-standalone", *arguments],
            cwd=home,
            env=environment(home),
            stdout=log,
            stderr=log,
        )
    try:
        eventually(lambda: serving.is_up() or process.poll() is not None, "the service is up")
        assert process.poll() is None, (home / "log").read_text()
        yield serving
    finally:
        process.terminate()
        assert process.wait(DEADLINE) == 0


def test_the_installed_programs_serve_leases_and_pages(programs: Path, tmp_path: Path) -> None:
    version = run(programs / "climate-standalone", "--version", cwd=tmp_path).split()[1]
    assert re.match(r"\d+(\.\d+)*", version)
    database = f"sqlite:///{tmp_path}/c.sqlite"
    upgrade = (programs / "climate-db-manage", "upgrade", "--database", database)
    assert re.fullmatch(r"\d{4}\n", run(*upgrade, cwd=tmp_path))
    with service(programs, tmp_path) as serving:
        serving.ok("POST", "/v2/resources", {"resource_type": "physical:host", "name": "sim-1"})
        lease = {"name": "first", "start": "now", "duration": 3600, "reservations": [hosts()]}
        lease_id = serving.ok("POST", "/v2/leases", lease)["id"]
        is_active = lambda: serving.ok("GET", f"/v2/leases/{lease_id}")["status"] == "ACTIVE"  # noqa: E731
        eventually(is_active, "the lease has started")
        pages = {page: loaded(serving, page) for page in ("/console/", "/v2/docs")}
    assert all(len(files) >= 3 for files in pages.values())
    failed = [file for files in pages.values() for file, status in files.items() if status != 200]
    assert failed == []


def loaded(serving: Service, page: str) -> dict[str, int]:
    """Return the status of each script, style sheet and icon that a page names, by its path."""
    html = requests.get(serving.url + page, timeout=DEADLINE).text
    paths = re.findall(r'(?:src|href)="([^"]+)"', html)
    urls = [urljoin(serving.url + page, path) for path in paths]
    return {url: requests.get(url, timeout=DEADLINE).status_code for url in urls}
