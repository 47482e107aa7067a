"""What one process compiled, kept in a folder for others: many processes and threads may use it at once.

An entry is a checksum and the code. It is written beside its place and moved there, so that readers see whole entries
only; one that was damaged all the same does not match its checksum, and counts as not there. The folder has a limit:
what was not used for longest goes first. What cannot be read or written is not kept; nobody needs to know.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from palladio.base import knobs

_CHECKSUM = hashlib.sha256().digest_size
_SUFFIX = ".palladio"
"""Of entries, and of what will become one. Other files in the folder are somebody else's."""


class ObjectStore:
    """Compiled code in a folder, by key.

    Args:
        folder: made when something is kept, for its owner alone: who can write there can run code as its owner.
        limit: how many bytes are kept.
    """

    def __init__(self, folder: Path, limit: int = knobs.CACHE_BYTES) -> None:
        self.folder = folder
        self.limit = limit

    def path(self, key: str) -> Path:
        """Where the entry of a key is."""
        return self.folder / f"{key}{_SUFFIX}"

    def get(self, key: str) -> bytes | None:
        """The entry of a key, or None where there is none that is whole."""
        path = self.path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        code = data[_CHECKSUM:]
        if not code or hashlib.sha256(code).digest() != data[:_CHECKSUM]:
            return None
        with contextlib.suppress(OSError):  # a folder that can only be read
            os.utime(path)
        return code

    def put(self, key: str, code: bytes) -> None:
        """Keep an entry."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(self.path(key), hashlib.sha256(code).digest() + code)
            self._remove_oldest()

    def _write(self, path: Path, data: bytes) -> None:
        file, beside = tempfile.mkstemp(_SUFFIX, dir=self.folder)
        try:
            with open(file, "wb") as opened:
                opened.write(data)
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise

    def _remove_oldest(self) -> None:
        """Keep within the limit. What a process that was killed has left half-written goes the same way."""
        found = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # another process has removed it
                    if entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        found.append((status.st_mtime_ns, status.st_size, entry.path))
        size = sum(bytes for _, bytes, _ in found)
        for _, bytes, path in sorted(found):
            if size <= self.limit:
                return
            with contextlib.suppress(OSError):
                os.unlink(path)
            size -= bytes


def current() -> ObjectStore | None:
    """The store that `PALLADIO_CACHE` names now, or None where nothing is to be kept."""
    folder = knobs.cache_folder()
    return None if folder is None else ObjectStore(folder)
