"""Count the files of climate that a request or an event executes: the length of a call path.

    python -m benchmarks.files_executed [--list]

One process, SQLite, the simulated cloud and the default configuration, without the limit of open
leases, which adds four files to a create. A file counts if one of its
functions is called during the measured step. Metrics, the clock and the log context are left out,
as every path uses them and no reader has to open them.
"""

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import climate
from climate.cmd import bootstrap
from climate.config import registry as config_registry
from climate.db.engine import schema
from climate.manager.events.dispatcher import Dispatcher
from climate.plugins.networking.simulated import NETWORK
from tests.support.clock import ManualClock

ROOT = Path(climate.__file__).parent
LEFT_OUT = ("metrics.py", "clock.py", "log_context.py", "__init__.py")
GOALS = {"create": 32, "change": 38, "start host": 26, "start floating IP": 27}

HOST = {"resource_type": "physical:host", "params": {"min": 1, "max": 1}}
FLOATING_IP = {
    "resource_type": "virtual:floatingip",
    "params": {"network_id": NETWORK, "amount": 1},
}
ADDRESS = "198.51.100.2"
START, END, LATER = (f"2030-01-15T{hour}:00:00Z" for hour in (13, 14, 15))


def executed(step: Callable[[], object]) -> set[str]:
    """Return the files, relative to the package, with a function that ``step`` called."""
    called: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            called.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    inside = (Path(name) for name in called if name.startswith(f"{ROOT}/"))
    return {str(path.relative_to(ROOT)) for path in inside if path.name not in LEFT_OUT}


def measure(folder: Path) -> dict[str, set[str]]:
    """Return the executed files of each step of ``GOALS``."""
    conf, clock = _conf(folder), ManualClock(datetime(2030, 1, 15, 12, tzinfo=UTC))
    runtime = bootstrap.make_runtime(conf, clock)
    schema.upgrade(runtime.database)
    http = bootstrap.make_api(conf, runtime).test_client()
    dispatcher = Dispatcher(runtime, "manager")

    def send(method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        response = http.open(path, method=method, json=body)
        assert response.status_code < 400, response.get_data(as_text=True)
        return dict(response.get_json())

    def lease(**fields: object) -> dict[str, Any]:
        return {"name": "lease", "start": START, "end": END, "reservations": [HOST], **fields}

    for number in (1, 2, 3):
        send("POST", "/v1/os-hosts", {"name": f"sim-{number}"})
    send(
        "POST", "/v1/floatingips", {"floating_network_id": NETWORK, "floating_ip_address": ADDRESS}
    )
    first = send("POST", "/v2/leases", lease())  # what is built and cached once
    path = f"/v2/leases/{first['id']}"
    send("PATCH", path, {"end": LATER})
    found = {
        "create": executed(lambda: send("POST", "/v2/leases", lease())),
        "change": executed(lambda: send("PATCH", path, {"end": END})),
    }
    clock.advance(3600)
    dispatcher.run_due()
    for name, wanted in (("start host", HOST), ("start floating IP", FLOATING_IP)):
        end = f"2030-01-15T{16 + len(found)}:00:00Z"
        send("POST", "/v2/leases", lease(start="now", end=end, reservations=[wanted]))
        found[name] = executed(dispatcher.run_due)
    return found


def _conf(folder: Path) -> Any:  # noqa: ANN401 - oslo.config is untyped
    conf = config_registry.new()
    config_registry.load(conf, "benchmarks", [])
    logging.getLogger("climate").setLevel(logging.ERROR)
    conf.set_override("connection", f"sqlite:///{folder}/climate.sqlite", group="database")
    conf.set_override("journal", str(folder / "cloud"), group="simulated")
    plugins = ["physical.host.plugin", "virtual.floatingip.plugin"]
    conf.set_override("plugins", plugins, group="manager")
    conf.set_override("project_leases", -1, group="limits")
    return conf


def main() -> None:
    """Print the number of files of each step beside its goal, and the files on request."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the files, too")
    wants_list = parser.parse_args().list
    with tempfile.TemporaryDirectory() as folder:
        for name, files in measure(Path(folder)).items():
            print(f"{name:20} {len(files):3} files, goal {GOALS[name]}")
            for file in sorted(files) if wants_list else []:
                print(f"    {file}")


if __name__ == "__main__":
    main()
