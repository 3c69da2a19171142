"""A reserved flavor requests exactly the amounts of the reservation from Nova."""

from climate.plugins.instances.cloud import Size
from climate.plugins.instances.nova_flavors import extra_specs, flavor_shape
from tests.support.cases import each_case

ID = "0aa1f9b6-1111-4222-8333-444455556666"
SLOT = {
    "resources:CUSTOM_RESERVATION_0AA1F9B6_1111_4222_8333_444455556666": "1",
    "aggregate_instance_extra_specs:reservation": ID,
    "climate:slots": ID,
}


@each_case(
    "amounts, shape, said",
    [
        (
            {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 10},
            {"vcpus": 2, "ram": 512, "disk": 10, "ephemeral": 0, "swap": 0},
            {},
        ),
        (
            {"DISK_GB": 10},
            {"vcpus": 1, "ram": 1, "disk": 10, "ephemeral": 0, "swap": 0},
            {"resources:VCPU": "0", "resources:MEMORY_MB": "0"},
        ),
        (
            {"PCPU": 4, "MEMORY_MB": 512, "CUSTOM_GPU": 1},
            {"vcpus": 4, "ram": 512, "disk": 0, "ephemeral": 0, "swap": 0},
            {"resources:VCPU": "0", "resources:PCPU": "4", "resources:CUSTOM_GPU": "1"},
        ),
    ],
)
def test_sets_the_amounts_that_nova_would_derive_otherwise(
    amounts: dict[str, int], shape: dict[str, int], said: dict[str, str]
) -> None:
    size = Size(amounts)
    assert flavor_shape(size) == shape
    assert extra_specs(ID, size) == {**said, **SLOT}


def test_keeps_the_extra_specs_of_the_flavor() -> None:
    own = {"hw:cpu_policy": "dedicated", "resources1:CUSTOM_FPGA": "1", "hw:mem_page_size": "large"}
    shape = {"vcpus": 4, "ram": 512, "disk": 10, "ephemeral": 2, "swap": 100}
    size = Size({"PCPU": 4, "MEMORY_MB": 512, "DISK_GB": 13, "CUSTOM_FPGA": 1}, own, shape)
    assert flavor_shape(size) == shape
    assert extra_specs(ID, size) == {**own, **SLOT}
