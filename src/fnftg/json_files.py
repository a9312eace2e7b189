"""Read and write JSON files, with a size limit and an optional checksum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import xxhash

from fnftg.errors import DamagedError, FnftgError

MAX_BYTES = 1 << 28
CHECKSUM = "checksum"


def read_json(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file. A checksum field is compared and removed.

    Raises:
        DamagedError: if the file is missing, too large, not a JSON object, or does not match its checksum.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise DamagedError(f"{path} is damaged: it has {size:,} bytes, more than any JSON file of fnftg.")
        value = json.loads(path.read_bytes().decode())
    except PermissionError as error:
        raise FnftgError(f"{path} cannot be read: permission denied.") from error
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged: it is not JSON.") from error
    if not isinstance(value, dict):
        raise DamagedError(f"{path} is damaged: it is not a JSON object.")
    if CHECKSUM in value and value.pop(CHECKSUM) != _checksum(value):
        raise DamagedError(
            f"The checksum of {path} does not match: restore the file, or delete its field {CHECKSUM} if you edited it."
        )
    return value


def write_json(path: Path, value: dict[str, Any], checksum: bool = True) -> None:
    """Write an object to a JSON file, with the checksum of its fields as the last field."""
    whole = {**value, CHECKSUM: _checksum(value)} if checksum else value
    text = json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8", errors="backslashreplace")  # names of files may have surrogates


def _checksum(value: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(value, sort_keys=True).encode())
