"""The section "Try it out" of provisioning.md does what it says."""

import json
import re
from pathlib import Path

from tests.support.process import Service, eventually, free_port, running

(DOCUMENT,) = (Path(__file__).parents[3] / "docs").glob("**/provisioning.md")


def test_a_host_that_no_provisioner_reaches_is_named_until_it_is_added(tmp_path: Path) -> None:
    text = DOCUMENT.read_text(encoding="utf-8").partition("## Try it out")[2].partition("\n## ")[0]
    blocks = dict(re.findall(r"```(ini|toml)\n(.*?)```", text, re.DOTALL))
    (body,) = re.findall(r"-d '(\{.*?\})'", text, re.DOTALL)
    service, nodes = Service(free_port()), tmp_path / "nodes.toml"
    nodes.write_text(blocks["toml"])
    conf = tmp_path / "climate.conf"
    conf.write_text(f"[DEFAULT]\nport = {service.port}\n{blocks['ini']}")
    given = f"--config-file={conf}"
    with (
        running(tmp_path, "climate-standalone", given) as manager,
        running(tmp_path, "climate-provisioner", given) as provisioner,
    ):
        manager.says("climate is ready at")
        lease_id = service.ok("POST", "/v2/leases", json.loads(body))["id"]
        provisioner.says("climate has preparations of sim-8")
        with nodes.open("a") as file:
            file.write("[nodes.sim-8]\n")
        eventually(
            lambda: service.ok("GET", f"/v2/leases/{lease_id}")["status"] == "ACTIVE",
            "the lease has started",
        )
