"""Errors that a user can act on."""


class FnftgError(Exception):
    """Bad input or a system failure. The message is one sentence that names the file, the line and the fix."""


class DamagedError(FnftgError):
    """A file that fnftg wrote is damaged. Callers that can rebuild the file do so."""


def shortened(value: str, limit: int = 80) -> str:
    """Format a value for a message: quoted, on one line, truncated to `limit` characters."""
    return repr(value if len(value) <= limit else value[: limit - 1] + "…")


def one_line(error: BaseException | str, limit: int = 200) -> str:
    """Format another library's error for a message: on one line, truncated, without the final full stop."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words.removesuffix(".") if len(words) <= limit else words[: limit - 1] + "…"
