"""Checks of configuration files: values that are invalid, and names that are no options.

oslo.config ignores unknown names, and its messages contain its internal objects.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from oslo_config import cfg

# In sections that libraries extend later, only names this similar to known ones are misspelt.
_SURELY_MISSPELT = 0.8
_WORDS = (
    (re.compile(r"invalid literal for int\(\) with base 10: (.*)"), r"\1 is not a whole number"),
    (re.compile(r"could not convert string to float: (.*)"), r"\1 is not a number"),
    (re.compile(r"Duplicate key (.*)"), r"\1 is listed twice"),
)
_PLACE = re.compile(r" from LocationInfo\(.*?detail='(.*?)'\)")


def invalid_values(
    conf: cfg.ConfigOpts, sections: Iterable[tuple[str, Sequence[cfg.Opt]]]
) -> Iterator[str]:
    """Yield an error message for each option that has an invalid value.

    ``sections`` has pairs of a section and its options.
    """
    for section, options in sections:
        group = conf if section == "DEFAULT" else conf[section]
        for option in options:
            try:
                getattr(group, option.dest)
            except cfg.NoSuchOptError as error:  # oslo.config replaces $NAME by an option's value
                yield (
                    f"[{section}] {option.name} contains ${error.opt_name}, and there is no option"
                    f" {error.opt_name}: write $${error.opt_name} for a dollar sign"
                )
            except (cfg.ConfigSourceValueError, cfg.TemplateSubstitutionError) as error:
                yield f"{_place(error)}[{section}] {option.name}: {_reason(error)}"


def _place(error: Exception) -> str:
    """Return the file, or the environment variable, that has an invalid value, and a space."""
    found = _PLACE.search(str(error))
    return f"{found[1]} " if found else ""


def _reason(error: Exception) -> str:
    reason = str(error).rpartition("is not valid: ")[2]
    for pattern, words in _WORDS:
        reason = pattern.sub(words, reason)
    return reason


def unknown_options(
    conf: cfg.ConfigOpts, own: Collection[str], shared: Collection[str]
) -> Iterator[str]:
    """Yield a warning for each name in the configuration files that is no option of climate.

    The name may be misspelt, or that of another release. The warning has the most similar option.
    ``own`` are the sections that contain only options of climate. In the sections ``shared``,
    libraries may register more options later, so only names that are surely misspelt are reported.
    """
    for path in _files(conf):
        for section, names in _sections(path).items():
            if section in own:
                yield from _unknown_names(conf, path, section, names, own)
            elif section in shared:
                yield from _misspelt_names(conf, path, section, names)
            elif section not in conf and (
                similar := get_close_matches(section, own, n=1, cutoff=_SURELY_MISSPELT)
            ):
                yield f"{path}: there is no section [{section}]; did you mean [{similar[0]}]?"


def _files(conf: cfg.ConfigOpts) -> list[Path]:
    """Return the files that oslo.config reads, in its order."""
    folders = [Path(folder) for folder in conf.config_dir or []]
    return [
        *map(Path, conf.config_file or []),
        *(path for folder in folders for path in sorted(folder.glob("*.conf"))),
    ]


def _sections(path: Path) -> Mapping[str, Collection[str]]:
    sections: dict[str, dict[str, Any]] = {}
    cfg.ConfigParser(str(path), sections).parse()
    return sections


def _unknown_names(
    conf: cfg.ConfigOpts, path: Path, section: str, names: Collection[str], own: Collection[str]
) -> Iterator[str]:
    for name in _unregistered(conf, section, names):
        hint = ""
        if similar := get_close_matches(name, list(conf[section]), n=1):
            hint = f"; did you mean {similar[0]}?"
        elif others := [other for other in sorted(own) if name in conf[other]]:
            hint = f"; did you mean that of [{others[0]}]?"
        yield f"{path}: [{section}] {name} is not an option (any more), and is ignored{hint}"


def _misspelt_names(
    conf: cfg.ConfigOpts, path: Path, section: str, names: Collection[str]
) -> Iterator[str]:
    known = list(conf) if section == "DEFAULT" else list(conf[section])
    for name in _unregistered(conf, section, names):
        if similar := get_close_matches(name, known, n=1, cutoff=_SURELY_MISSPELT):
            yield f"{path}: [{section}] {name} is not an option; did you mean {similar[0]}?"


def _unregistered(conf: cfg.ConfigOpts, section: str, names: Collection[str]) -> list[str]:
    known = conf if section == "DEFAULT" else conf[section]
    return [name for name in (name.replace("-", "_") for name in names) if name not in known]
