"""A port that another program uses."""

import socket
from pathlib import Path

import pytest

from tests.support.process import Program


@pytest.mark.nightly
def test_names_a_port_in_use_before_it_creates_a_database(tmp_path: Path) -> None:
    database = tmp_path / "new.sqlite"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ("--database", f"sqlite:///{database}", "--port", str(port))
        program = Program(tmp_path, "climate-standalone", *arguments)
        assert program.wait() == 1
    assert program.last_words.startswith(
        f"climate-standalone: cannot listen on 127.0.0.1:{port}: Address already in use"
    )
    assert "Traceback" not in program.errors
    assert not database.exists()
