"""A service for each node of a cluster, and what its users have been promised."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, Self

from climate.cmd import main
from tests.clusters.testbed import Server
from tests.support.process import Program, Service, free_port, write_config

HOSTS = 60


class Node:
    """``climate-standalone`` (API and manager) on one server of a cluster."""

    def __init__(self, server: Server, home: Path, **options: object) -> None:
        self.service = Service(free_port())
        self.home = home / f"service-{self.service.port}"
        self.home.mkdir()
        self._conf = write_config(
            self.home / "climate.conf",
            simulated__journal=home / "cloud",
            simulated__hosts=HOSTS,
            manager__poll_interval=1,
            manager__claim_timeout=10,
            limits__enabled=True,
            **{"database__connection": server.url("climate"), **options},
        )
        self.url = str(options.get("database__connection"))
        self.journal = home / "cloud"
        self.program: Program | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.program is not None:
            self.program.kill()

    def start(self) -> None:
        """Start the service and wait until it answers."""
        arguments = (f"--config-file={self._conf}", "--port", str(self.service.port), "--empty")
        self.program = Program(self.home, "climate-standalone", *arguments)
        self.program.says("climate is ready at")

    def manage(self, *arguments: str) -> None:
        """Run ``climate-manage``, which must succeed."""
        assert main.manage([*arguments, f"--config-file={self._conf}"]) == 0

    def register_hosts(self) -> None:
        """Register all hosts of the simulated cloud."""
        for number in range(1, HOSTS + 1):
            self.service.ok("POST", "/v1/os-hosts", {"name": f"sim-{number}"})


def assert_no_effect_twice(journal: Path) -> None:
    """Assert that no change of the simulated cloud was made twice."""
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    made = Counter(
        tuple(sorted((key, str(value)) for key, value in line.items() if key != "at"))
        for line in lines
        if line["effect"] != "enroll"  # each service lists the hosts when it starts
    )
    assert [change for change, count in made.items() if count > 1] == []


def rows(server: Server, table: str) -> list[tuple[Any, ...]]:
    """Return all rows of a table of a server."""
    return sorted(map(tuple, server.execute(f"SELECT * FROM climate.{table}")), key=repr)
