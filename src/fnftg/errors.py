"""The one kind of error that a user can act on."""


class FnftgError(Exception):
    """Bad input or a full disk: one sentence that names the file, the line and the fix."""


def shortened(value: str, limit: int = 80) -> str:
    """A value as it may stand in a message: quoted, on one line, cut when long."""
    return repr(value if len(value) <= limit else value[: limit - 1] + "…")
