"""JSON from a file that nobody vouches for: an object, or an error that names the file.

Knows: how JSON can be wrong. Refuses to know: what the members mean.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from .mapped import MappedFile, malformed, shown


class _RefusedError(ValueError):
    """What a hook of the parser says; it does not know the file."""


def _members_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _RefusedError(f"{shown(name)!r} twice")
    return members


def _no_constant(name: str) -> NoReturn:
    raise _RefusedError(name)


def parse_object(path: Path, field: str, octets: bytes, *, strict: bool) -> dict[str, Any]:
    """Parse a JSON object.

    `strict` refuses what a machine-written header never holds: a name twice, NaN and infinities. A config.json may
    have them (Mamba's ``time_step_limit`` ends in Infinity).
    """
    try:
        value = (
            json.loads(octets.decode(), object_pairs_hook=_members_once, parse_constant=_no_constant)
            if strict
            else json.loads(octets.decode())
        )
    except UnicodeDecodeError as error:
        raise malformed(path, field, "UTF-8", f"byte {error.object[error.start]:#04x}") from None
    except json.JSONDecodeError as error:
        raise malformed(path, field, "JSON", f"{error.msg} at character {error.pos}") from None
    except _RefusedError as error:
        raise malformed(path, field, "JSON with every name once and finite numbers", error) from None
    except RecursionError:
        raise malformed(path, field, "JSON", "brackets nested too deep") from None
    except ValueError:  # Python's bound on the digits of an integer
        raise malformed(path, field, "JSON", "an integer of thousands of digits") from None
    if not isinstance(value, dict):
        raise malformed(path, field, "a JSON object", kind_of(value))
    return value


def read_object(path: Path, largest: int) -> dict[str, Any]:
    """Read a file that is one JSON object of at most `largest` bytes."""
    file = MappedFile(path)
    if file.size > largest:
        raise malformed(path, "file", f"at most {largest} bytes", file.size)
    return parse_object(path, "file", file.buffer[:], strict=False)


def kind_of(value: Any) -> str:
    """Name what a JSON value is."""
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")
