"""Release notes can be read by reno, which needs the git history that a source archive lacks."""

import re
from collections import Counter
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2] / "releasenotes"
NAME = re.compile(r"[a-z0-9-]+-([0-9a-f]{16})\.yaml")


def test_every_release_note_has_a_unique_id_and_known_sections() -> None:
    config = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    sections = {name for name, _ in config["sections"]}
    notes = sorted((ROOT / config["notesdir"]).iterdir())
    assert notes
    names = {note.name: NAME.fullmatch(note.name) for note in notes}
    assert [name for name, match in names.items() if match is None] == []
    ids = Counter(match[1] for match in names.values() if match is not None)
    assert [uid for uid, count in ids.items() if count > 1] == []
    for note in notes:
        content = yaml.safe_load(note.read_text(encoding="utf-8"))
        assert set(content) <= sections, note.name
        items = [item for items in content.values() for item in items]
        assert items, note.name
        assert all(isinstance(item, str) and item.strip() for item in items), note.name
