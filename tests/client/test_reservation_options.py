"""The options that describe reservations."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from climate.client.commands.options.reservations import condition, of_json, of_text, parameters

EXPRESSION = ["and", [">=", "$vcpus", 64], ["==", "$rack", "r1"]]


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("2", {"min": 2, "max": 2}),
        ("1-4", {"min": 1, "max": 4}),
        ("min=2", {"min": 2, "max": 2}),
        ("max=3", {"min": 1, "max": 3}),
        ("min=1,max=2", {"min": 1, "max": 2}),
        ("where=vcpus>=64 and rack=r1", {"min": 1, "max": 1, "resource_properties": EXPRESSION}),
        (
            '2,hypervisor_properties=["in","$rack","r1","a,b"],before_end=snapshot',
            {
                "min": 2,
                "max": 2,
                "hypervisor_properties": ["in", "$rack", "r1", "a,b"],
                "before_end": "snapshot",
            },
        ),
    ],
)
def test_describes_hosts(text: str, params: dict[str, Any]) -> None:
    assert of_text("physical:host", text) == {"resource_type": "physical:host", "params": params}


@pytest.mark.parametrize(
    ("resource_type", "text", "params"),
    [
        (
            "virtual:instance",
            "4,vcpus=2,memory_mb=4096,disk_gb=20,affinity=false",
            {"amount": 4, "vcpus": 2, "memory_mb": 4096, "disk_gb": 20, "affinity": False},
        ),
        ("flavor:instance", "2,flavor_id=42", {"amount": 2, "flavor_id": "42"}),
        (
            "flavor:instance",
            "flavor_id=a,ready_port=22,ready_text=42",
            {"flavor_id": "a", "ready_port": 22, "ready_text": "42"},
        ),
        ("virtual:volume", "volume_type=1,size=10", {"volume_type": "1", "size": 10}),
        (
            "virtual:floatingip",
            'network_id=ext,required_floatingips=["198.51.100.2"]',
            {"network_id": "ext", "required_floatingips": ["198.51.100.2"]},
        ),
        ("virtual:network", "lab net,on_end=keep", {"network_name": "lab net", "on_end": "keep"}),
    ],
)
def test_describes_other_types(resource_type: str, text: str, params: dict[str, Any]) -> None:
    assert of_text(resource_type, text)["params"] == params


def test_reads_the_template_of_a_stack_and_the_files_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "start.sh").write_text("#!/bin/sh\n")
    template = tmp_path / "web.yaml"
    template.write_text(
        "heat_template_version: 2016-10-14\n"
        "resources:\n  web:\n    type: OS::Nova::Server\n"
        "    properties: {flavor: m1.small, user_data: {get_file: start.sh}}\n"
    )
    environment = tmp_path / "env.yaml"
    environment.write_text("parameters: {size: 3}\n")
    params = of_text("virtual:stack", f"{template},stack_name=web,environment={environment}")[
        "params"
    ]
    assert params["template"]["heat_template_version"] == "2016-10-14"
    assert list(params["files"].values()) == ["#!/bin/sh\n"]
    assert params["environment"]["parameters"] == {"size": 3}
    assert params["stack_name"] == "web"


def test_reads_any_reservation_as_json_or_from_a_file(tmp_path: Path) -> None:
    wanted = {"resource_type": "lab:bench", "params": {"places": 2}}
    assert of_json(json.dumps(wanted)) == wanted
    assert of_json('{"resource_type": "lab:bench", "places": 2}') == wanted
    (tmp_path / "bench.json").write_text(json.dumps(wanted))
    assert of_json(f"@{tmp_path}/bench.json") == wanted


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("vcpus>=64", [">=", "$vcpus", 64]),
        ("rack = r1", ["==", "$rack", "r1"]),
        ("gpu!=true", ["!=", "$gpu", True]),
        ("trait:CUSTOM_GPU=True", ["==", "$trait:CUSTOM_GPU", "True"]),
        ('["==", "$rack", "r1"]', ["==", "$rack", "r1"]),
    ],
)
def test_a_condition_is_a_property_expression(text: str, expression: Any) -> None:
    assert condition(text) == expression


@pytest.mark.parametrize(
    ("text", "operator"),
    [("vcpus=>3", ">="), ("rack=r1 and vcpus =< 3", "<="), ("vcpus<>3", "!=")],
)
def test_a_swapped_operator_is_corrected(text: str, operator: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"did you mean {operator}"):
        condition(text)
    assert condition('rack=">3"') == ["==", "$rack", ">3"]


@pytest.mark.parametrize("text", ["0", "0-2", "min=0,max=2", "max=0"])
def test_hosts_are_at_least_one(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="reserves no host; write at least 1"):
        of_text("physical:host", text)


@pytest.mark.parametrize("text", ["foo", "min=1,min=2", "where=vcpus", 'where=["==",', "2-4-6", ""])
def test_rejects_what_it_cannot_read(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parameters(text, is_range=True)
