"""Fixtures: browsers at a service without authentication, and at one with Keystone."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from climate.cmd import bootstrap
from climate.config import registry as config_registry
from tests.support.browser import Browser
from tests.support.clock import ManualClock
from tests.support.keystone import Keystone
from tests.support.process import write_config
from tests.support.service import Story

MakeSecured = Callable[..., Story]


@pytest.fixture
def browser(story: Story) -> Browser:
    """Return a browser at a service without authentication."""
    return Browser(story)


@pytest.fixture
def keystone() -> Iterator[Keystone]:
    """Return a Keystone in which alice is in the projects lab and ops, bob in lab only."""
    known = Keystone()
    known.passwords = {"alice": "open sesame", "bob": "b0b's"}
    known.memberships = {"alice": ["lab", "ops"], "bob": ["lab"]}
    known.credentials = {"cred-1": ("a secret", "alice", "ops")}
    with known.listening():
        yield known


@pytest.fixture
def make_secured(
    keystone: Keystone, sqlite_url: str, clock: ManualClock, tmp_path: Path
) -> Iterator[MakeSecured]:
    """Return a maker of services that check tokens with Keystone."""
    made: list[Story] = []

    def make(**options: object) -> Story:
        identity = {f"keystone_authtoken__{key}": value for key, value in keystone.options.items()}
        path = write_config(
            tmp_path / f"climate-{len(made)}.conf",
            **{
                "database__connection": sqlite_url,
                "simulated__journal": tmp_path / "cloud",
                "api__auth_strategy": "keystone",
                "keystone_authtoken__http_request_max_retries": 0,
                "keystone_authtoken__token_cache_time": -1,
                **identity,
                **options,
            },
        )
        conf = config_registry.new()
        config_registry.load(conf, "test", [f"--config-file={path}"])
        made.append(Story(conf, bootstrap.make_runtime(conf, clock), clock))
        return made[-1]

    yield make
    for story in made:
        story.close()


@pytest.fixture
def secured(make_secured: MakeSecured) -> Story:
    """Return a service that checks tokens with Keystone."""
    return make_secured()
