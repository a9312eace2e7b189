"""Download and unpack archives. Interrupted downloads are resumed; nothing is unpacked outside the target folder."""

from __future__ import annotations

import fcntl
import http.client
import lzma
import os
import re
import shutil
import tarfile
import time
import urllib.request
import zlib
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from fnftg.console import progress
from fnftg.errors import FnftgError, one_line
from fnftg.version import __version__

ATTEMPTS = 3
PAUSE = 1.0  # seconds before the second attempt; doubled before each further attempt
TIMEOUT = 30.0  # seconds without data
CHUNK = 1 << 18  # bytes
LARGEST = 1 << 36  # bytes that an archive may unpack to
WORTH_ANOTHER_TRY = {408, 425, 429, 500, 502, 503, 504}  # HTTP status codes
RANGE_NOT_SATISFIABLE = 416


class TransferError(Exception):
    """The connection failed or ended early. The data received so far is kept for another attempt."""


def download(url: str, target: Path, description: str) -> None:
    """Download `url` to the file `target`. An incomplete download stays in `target`.part, and a later call resumes it.

    Raises:
        FnftgError: if the download fails after several attempts.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise FnftgError(f"{url} cannot be downloaded: only http and https addresses are supported.")
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "ab") as file:
            _lock(file, target)
            _fetch_persistently(url, file, description)
            os.fsync(file.fileno())
            os.replace(part, target)
    except OSError as error:
        raise FnftgError(
            f"{part} cannot be written ({error.strerror}): free some space or choose another folder."
        ) from error


def _lock(file: IO[bytes], target: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FnftgError(f"Another process is downloading {target}: wait for it to finish.") from error


def _fetch_persistently(url: str, file: IO[bytes], description: str) -> None:
    """Make several attempts. Each continues where the previous one ended."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _fetch(url, file, description)
            return
        except TransferError as error:
            if attempt == ATTEMPTS:
                kept = file.seek(0, os.SEEK_END)
                advice = f"run the command again to resume from byte {kept:,}" if kept else "try again later"
                raise FnftgError(
                    f"{url} cannot be downloaded ({error}): {advice}, or give a local copy with --from DIR."
                ) from error
        time.sleep(PAUSE * 2 ** (attempt - 1))


def _fetch(url: str, file: IO[bytes], description: str) -> None:
    """Request the part that `file` lacks. A server without range support sends the whole file again."""
    have = file.seek(0, os.SEEK_END)
    headers = {"User-Agent": f"fnftg/{__version__}"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = _web().open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        with error:
            if error.code == RANGE_NOT_SATISFIABLE and have:
                if error.headers.get("Content-Range") == f"bytes */{have}":
                    return
                file.truncate(0)
                raise TransferError("the file on the server has changed") from error
            if error.code in WORTH_ANOTHER_TRY:
                raise TransferError(f"the server answered {error.code} {error.reason}") from error
            raise FnftgError(
                f"{url} cannot be downloaded (the server answered {error.code} {error.reason}): "
                "get the data elsewhere and give the local copy with --from DIR."
            ) from error
    except URLError as error:
        raise TransferError(_reason(error.reason)) from error
    except (OSError, http.client.HTTPException) as error:
        raise TransferError(_reason(error)) from error
    with response:
        start = _start(response)
        if start != have:
            file.truncate(0)
            if start != 0:
                raise TransferError("the server sent another part than the requested one")
        length = response.headers.get("Content-Length")
        end = start + int(length) if length and length.isdigit() else None
        with progress(description, end) as advance:
            advance(start)
            while data := _read(response):
                file.write(data)
                advance(len(data))
        received = file.seek(0, os.SEEK_END)
    if end is not None and received != end:
        raise TransferError(f"the connection ended after {received:,} of {end:,} bytes")


def _web() -> urllib.request.OpenerDirector:
    """Return an opener that supports only HTTP and HTTPS, so that redirects to other schemes fail."""
    web = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
    ):
        web.add_handler(handler())
    return web


def _start(response: http.client.HTTPResponse) -> int:
    """Return the offset in the file at which the response begins, or -1 if it is not stated."""
    if response.status != http.client.PARTIAL_CONTENT:
        return 0
    stated = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(stated[1]) if stated else -1


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise TransferError(_reason(error)) from error


def _reason(error: object) -> str:
    """Return the reason of an error in a few words."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def extract_tar(archive: Path, folder: Path) -> None:
    """Unpack the regular files of a tar archive, compressed or not, into `folder`. Links and devices are skipped.

    Raises:
        FnftgError: if the archive is damaged, too large, or has a path outside the folder.
    """
    try:
        with tarfile.open(archive) as tar, progress(f"Unpacking {archive.name}", None) as advance:
            total = 0
            for member in tar:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts:
                    raise FnftgError(
                        f"{archive} would write outside its folder ({member.name!r}): do not use this archive."
                    )
                total += member.size
                if total > LARGEST:
                    raise FnftgError(
                        f"{archive} unpacks to more than {LARGEST >> 30} GiB: this is not the published archive."
                    )
                content = tar.extractfile(member) if member.isreg() else None
                if content is None:
                    continue
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                with open(folder / path, "wb") as file:
                    shutil.copyfileobj(content, file, CHUNK)
                advance(member.size)
            while tar.fileobj is not None and tar.fileobj.read(CHUNK):
                pass  # read to the end to check the compression's checksum, which tarfile does not
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # errors of bzip2 and gzip have no errno
            raise
        raise FnftgError(f"{archive} is truncated or no tar archive ({one_line(error)}): download it again.") from error
