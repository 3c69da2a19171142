"""Power drivers: IPMI, Redfish, an operator's program and the simulation."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from climate.provisioner import checks
from climate.provisioner.nodes import Node
from climate.provisioner.power import driver as power_driver
from climate.provisioner.power.command import Command
from climate.provisioner.power.driver import BootDevice, Power, PowerDriver, Refused, Unreachable
from climate.provisioner.power.ipmi import Ipmi
from climate.provisioner.power.redfish import Redfish
from climate.provisioner.power.simulated import Simulated
from tests.system.provisioner import bmc
from tests.system.provisioner.bmc import Bmc

# Far beyond what it takes: the machine may be busy. The emulator's machines take up to 11 s.
PATIENCE = 60.0

# Keeps the power of a machine in a file, and notes what it was asked but for secrets.
_PROGRAM = """
import json, pathlib, sys
asked = json.load(sys.stdin)
assert asked["password"] == "s3cret-of-the-bmc" and asked["options"] == {"zone": 3}
state = pathlib.Path(sys.argv[1])
if asked["action"] == "power":
    print(state.read_text() if state.exists() else "off")
elif asked["action"] == "boot":
    state.with_suffix(".boot").write_text(asked["device"])
else:
    state.write_text("on" if asked["action"] == "on" else "off")
"""


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_BMC_PASSWORD", bmc.PASSWORD)


def _node(driver: str, **fields: Any) -> Node:
    given = {"username": bmc.USER, "password_env": "TEST_BMC_PASSWORD", **fields}
    return Node(name="node-1", driver=driver, **given)


def _ipmi_node(port: int, **fields: Any) -> Node:
    options = {"cipher_suite": 3}
    return _node("ipmi", address="127.0.0.1", port=port, **{"options": options, **fields})


def _redfish_node(peer: Bmc, **fields: Any) -> Node:
    options = {"verify": str(peer.home / "cert.pem")}
    address = f"https://localhost:{peer.port}"
    return _node("redfish", address=address, **{"options": options, **fields})


def _program_node(program: str, *words: str) -> Node:
    options = {"program": [sys.executable, "-c", program, *words], "zone": 3}
    return _node("command", options=options)


@pytest.fixture
def ipmi(tmp_path: Path) -> Iterator[Bmc]:
    with bmc.ipmi(tmp_path / "ipmi") as made:
        yield made


@pytest.fixture
def redfish(tmp_path: Path) -> Iterator[Bmc]:
    with bmc.redfish(tmp_path / "redfish") as made:
        yield made


@pytest.fixture(params=["ipmi", "redfish", "command", "simulated"])
def reached(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[PowerDriver, Node]]:
    with ExitStack() as peers:
        made: dict[str, Callable[[], tuple[PowerDriver, Node]]] = {
            "ipmi": lambda: (
                Ipmi(),
                _ipmi_node(peers.enter_context(bmc.ipmi(tmp_path / "bmc")).port),
            ),
            "redfish": lambda: (
                Redfish(),
                _redfish_node(peers.enter_context(bmc.redfish(tmp_path / "bmc"))),
            ),
            "command": lambda: (Command(), _program_node(_PROGRAM, str(tmp_path / "state"))),
            "simulated": lambda: (Simulated(), _node("simulated")),
        }
        yield made[request.param]()


def test_a_node_is_switched_on_once_and_off_again(reached: tuple[PowerDriver, Node]) -> None:
    driver, node = reached
    assert driver.power(node) is Power.OFF
    driver.boot_from(node, BootDevice.PXE)
    assert power_driver.switch(driver, node, Power.ON, PATIENCE)
    assert driver.power(node) is Power.ON
    assert not power_driver.switch(driver, node, Power.ON, PATIENCE)
    assert power_driver.switch(driver, node, Power.OFF, PATIENCE)
    assert driver.power(node) is Power.OFF


def test_a_node_shuts_down_on_request(reached: tuple[PowerDriver, Node]) -> None:
    driver, node = reached
    power_driver.switch(driver, node, Power.ON, PATIENCE)
    driver.shut_down(node)
    assert power_driver.becomes(driver, node, Power.OFF, PATIENCE)


def test_a_system_that_ignores_the_shutdown_stays_on(ipmi: Bmc) -> None:
    ipmi.ignore_shutdown()
    node = _ipmi_node(ipmi.port)
    power_driver.switch(Ipmi(), node, Power.ON, PATIENCE)
    Ipmi().shut_down(node)
    assert not power_driver.becomes(Ipmi(), node, Power.OFF, 2.0)
    assert ipmi.sets("shutdown")
    assert ipmi.switched == ["1"]


def test_ipmi_commands_reach_the_chassis(ipmi: Bmc) -> None:
    node = _ipmi_node(ipmi.port)
    Ipmi().boot_from(node, BootDevice.PXE)
    power_driver.switch(Ipmi(), node, Power.ON, PATIENCE)
    assert ipmi.sets("boot") == ["pxe"]
    assert set(ipmi.sets("power")) == {"1"}


@pytest.mark.parametrize("wrong", [{"username": "nobody"}, {"password_env": "TEST_BMC_WRONG"}])
def test_wrong_credentials_are_rejected_and_never_shown(
    wrong: dict[str, str], ipmi: Bmc, redfish: Bmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_BMC_WRONG", "an0ther-secret")
    for driver, node in (
        (Ipmi(), _ipmi_node(ipmi.port, **wrong)),
        (Redfish(), _redfish_node(redfish, **wrong)),
    ):
        with pytest.raises(Refused) as told:
            driver.power(node)
        assert "secret" not in repr(told.value).replace(bmc.PASSWORD, "secret")
        assert "s3cret" not in repr(node)


def test_a_silent_bmc_is_unreachable_after_a_deadline(ipmi: Bmc, redfish: Bmc) -> None:
    ipmi.hang()
    redfish.hang()
    for driver, node in (
        (Ipmi(deadline=1.0), _ipmi_node(ipmi.port)),
        (Redfish(deadline=1.0), _redfish_node(redfish)),
    ):
        with pytest.raises(Unreachable):  # the test's own time-out ends a driver that hangs
            driver.power(node)


def test_a_node_with_an_unanswered_request_gets_no_other(redfish: Bmc) -> None:
    redfish.hang()
    driver, node = Redfish(deadline=0.2), _redfish_node(redfish)
    with pytest.raises(Unreachable, match="within"):
        driver.power(node)
    with pytest.raises(Unreachable, match="earlier request"):
        driver.power(node)


def test_a_bmc_that_does_not_switch_is_reported(ipmi: Bmc) -> None:
    (ipmi.home / "stuck").touch()
    with pytest.raises(power_driver.PowerUnchanged, match="is not on"):
        power_driver.switch(Ipmi(), _ipmi_node(ipmi.port), Power.ON, 3.0)
    assert "1" in ipmi.sets("power")


def test_a_bmc_that_dies_during_a_command_is_unreachable(ipmi: Bmc) -> None:
    (ipmi.home / "delay").write_text("30")
    node = _ipmi_node(ipmi.port)

    class Dying(Ipmi):
        def set_power(self, node: Node, wanted: Power) -> None:
            ipmi.disconnect()
            super().set_power(node, wanted)

    (ipmi.home / "delay").unlink()
    with pytest.raises(Unreachable):
        power_driver.switch(Dying(), node, Power.ON, PATIENCE)


def test_an_unknown_certificate_is_rejected(redfish: Bmc) -> None:
    with pytest.raises(Refused, match=r"(?i)certificate"):
        Redfish().power(_redfish_node(redfish, options={"verify": True}))


def test_an_unknown_system_is_rejected(redfish: Bmc) -> None:
    options = {"verify": str(redfish.home / "cert.pem"), "system": "/redfish/v1/Systems/none"}
    with pytest.raises(Refused, match="NotFound"):
        Redfish().power(_redfish_node(redfish, options=options))


@pytest.mark.parametrize(
    ("program", "refusal", "reason"),
    [
        ("raise SystemExit('no such rack')", Refused, "no such rack"),
        ("import sys; print('later', file=sys.stderr); sys.exit(75)", Unreachable, "later"),
        ("print('perhaps')", Refused, "must print on or off"),
        ("import time; time.sleep(60)", Unreachable, "took 1 s"),
    ],
)
def test_a_failing_program_reports_its_reason_and_whether_to_retry(
    program: str, refusal: type[Exception], reason: str
) -> None:
    with pytest.raises(refusal, match=reason):
        Command(deadline=1.0).power(_program_node(program))


def test_child_processes_of_a_program_end_with_it(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    child = f"import time, pathlib; time.sleep(2); pathlib.Path({str(mark)!r}).touch()"
    program = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}])"
    with pytest.raises(Unreachable):
        Command(deadline=1.0).power(_program_node(f"{program}; time.sleep(60)"))
    time.sleep(2.5)
    assert not mark.exists()


def test_the_group_of_a_program_that_ended_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program was reaped, so its number may be that of another process group."""
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _signal: killed.append(group))
    assert Command().power(_program_node("print('on')")) is Power.ON
    assert checks._command({"program": [sys.executable, "-c", ""]})
    assert killed == []


def test_a_program_that_cannot_be_killed_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of another user, as with sudo."""

    def forbid(group: int, number: int) -> None:
        os.kill(group, number)  # leave nothing behind
        raise PermissionError

    monkeypatch.setattr(os, "killpg", forbid)
    with pytest.raises(Unreachable, match="took 1 s"):
        Command(deadline=1.0).power(_program_node("import time; time.sleep(60)"))


def test_a_driver_without_its_program_is_rejected() -> None:
    with pytest.raises(Refused, match="no-such-program"):
        Ipmi("no-such-program").power(_ipmi_node(1))
    with pytest.raises(Refused, match=r"options\.program"):
        Command().power(_node("command"))


def test_a_node_does_not_contain_its_password() -> None:
    node = _ipmi_node(1)
    assert bmc.PASSWORD not in json.dumps(
        {name: str(getattr(node, name)) for name in node.__slots__}
    )
