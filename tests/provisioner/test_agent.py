"""The main loop of a provisioner: which tasks it starts, and what it says of the others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from climate.provisioner.agent import Provisioner
from climate.provisioner.client import ClimateClient, NodeTask
from climate.provisioner.groups import Groups
from climate.provisioner.power.simulated import Simulated
from climate.provisioner.prepare import Tools


class ForeignTasks(ClimateClient):
    """A climate with one task for a preparation, and one for a shutdown, of other nodes."""

    def __init__(self) -> None:
        """Connect to nothing."""

    def claimable(self, noun: str, wait: int = 0) -> Iterator[NodeTask]:
        yield NodeTask(id=noun, node=f"of-{noun}", resource_id="1", noun=noun)


def test_names_each_wanted_node_that_is_not_in_its_nodes_file_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "nodes.toml"
    file.write_text('[nodes.sim-1]\ndriver = "simulated"\n')
    tools = Tools(
        climate=ForeignTasks(),
        drivers={"simulated": Simulated()},
        groups=Groups(1, 0),
        power_timeout=5.0,
        ready_timeout=5.0,
        shutdown_timeout=5.0,
    )
    provisioner = Provisioner(tools, file, 1, 60, 0.0)
    caplog.set_level("INFO", "climate.provisioner")
    provisioner.poll()
    provisioner.poll()
    assert caplog.messages == [
        f"climate has {noun} of of-{noun}, but {file} has no such node:"
        " another provisioner must have it"
        for noun in ("preparations", "shutdowns")
    ]
