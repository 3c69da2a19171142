"""Lists of Neutron objects are complete, whatever the longest answer of Neutron."""

from pathlib import Path

from climate.config import registry as config
from climate.plugins.openstack.neutron import Neutron
from tests.support.answers import answering
from tests.support.keystone import Keystone
from tests.support.process import write_config


def test_reads_all_pages_of_a_list(tmp_path: Path) -> None:
    keystone = Keystone()
    first = {"ports": [{"id": "a"}, {"id": "b"}], "ports_links": [{"rel": "next", "href": "/x"}]}
    # The last page is empty if the page before it is full.
    last = {"ports": [], "ports_links": [{"rel": "previous", "href": "/x"}]}
    with keystone.listening(), answering((200, first), (200, last)) as service:
        user = {f"service_user__{name}": value for name, value in keystone.options.items()}
        path = write_config(
            tmp_path / "climate.conf", neutron__endpoint_override=service.url, **user
        )
        conf = config.new()
        config.load(conf, "test", [f"--config-file={path}"])
        found = Neutron(conf, "floatingips").fetch("ports", {"network_id": "n"})
    assert [port["id"] for port in found] == ["a", "b"]
    assert service.asked == ["/v2.0/ports?network_id=n", "/v2.0/ports?network_id=n&marker=b"]
