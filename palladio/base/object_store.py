"""A folder of compiled code that processes share: many processes and threads may use it at once.

An entry is a checksum and the code. It is written beside its place and moved there, so that readers see whole entries
only; one that was damaged all the same does not match its checksum, and counts as not there. The folder has a limit:
beyond it an eighth is freed, of the entries that were not used for longest. What cannot be read or written is not kept,
without a message.

What lies in the folder is run as the user who reads it, so no other user may be able to put it there: a folder that
belongs to another user, or that others can write to, is not used, and a warning says so. Each entry is judged by its
open file: a regular one, the user's own or root's, that no other user can write to. Its checksum covers its key, so
that an entry under another's name does not count either.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import warnings
from collections.abc import Callable
from pathlib import Path

from palladio.base import knobs
from palladio.base.errors import UnsafeCacheWarning

_CHECKSUM = hashlib.sha256().digest_size
_SUFFIX = ".palladio"
"""Of entries, and of what will become one. Other files in the folder are not the store's."""

_OPEN = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""A link is not followed, and a named pipe is opened without waiting for its other end."""

_unmeasured: dict[Path, int] = {}
"""Folder -> how many bytes this process may add before it measures the folder again, which asks for every entry.

It is a sixteenth of what was free, so that several processes may add as much at once."""

_warned: set[str] = set()
"""The warnings given by this process: each folder is refused many times."""


def _risk(status: os.stat_result) -> str | None:
    """Why someone else could have changed a file or folder; None where only its owner can, or root."""
    if not hasattr(os, "geteuid"):  # the permissions of Windows are not in the mode
        return None
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user (uid {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users can write to it (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def _digest(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + code).digest()


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
        """The path of the entry of a key."""
        return self.folder / f"{key}{_SUFFIX}"

    def get(self, key: str) -> bytes | None:
        """The entry of a key, or None where there is none that is whole."""
        if not self.safe():
            return None
        try:
            data = self._read(self.path(key))
        except OSError:
            return None
        code = data[_CHECKSUM:]
        return code if code and _digest(key, code) == data[:_CHECKSUM] else None

    def _read(self, path: Path) -> bytes:
        """The content of an entry that only its owner can have written, which is noted as used; else nothing."""
        file = os.open(path, _OPEN)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_size > self.limit or _risk(status) is not None:
                return b""
            with open(file, "rb", closefd=False) as opened:
                data = opened.read()
            with contextlib.suppress(OSError):  # a folder that can only be read
                os.utime(file if os.utime in os.supports_fd else path)
            return data
        finally:
            os.close(file)

    def risk(self) -> str | None:
        """The reason why another user could have written into the folder; None if none can, or if it does not exist."""
        try:
            return _risk(self.folder.stat())
        except OSError:
            return None

    def usage(self) -> tuple[int, int]:
        """The number of entries and their bytes."""
        found = self._entries()
        return len(found), sum(size for _, size, _ in found)

    def safe(self) -> bool:
        """True if no other user can have written code into the folder; if not, warn, once for each reason."""
        risk = self.risk()
        if risk is None:
            return True
        message = (
            f"compiled kernels are not kept in {self.folder}: {risk}, and what lies there is run\n"
            "  hint:     make it your own and `chmod go-w` it, or name another folder in PALLADIO_CACHE (`0` for none)"
        )
        if message not in _warned:
            _warned.add(message)
            warnings.warn(message, UnsafeCacheWarning, stacklevel=2)
        return False

    def put(self, key: str, code: bytes) -> None:
        """Keep an entry."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.safe():
                self._write(self.path(key), _digest(key, code) + code)
                left = _unmeasured.get(self.folder, 0) - _CHECKSUM - len(code)
                _unmeasured[self.folder] = left if left >= 0 else (self.limit - self._remove_oldest()) // 16

    def _write(self, path: Path, data: bytes) -> None:
        import tempfile  # with compression and random numbers, which most processes do not need

        file, beside = tempfile.mkstemp(_SUFFIX, dir=self.folder)
        try:
            with open(file, "wb") as opened:
                opened.write(data)
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise

    def _remove_oldest(self) -> int:
        """Keep within the limit, and return the bytes kept. Partial files of killed processes are removed likewise."""
        found = self._entries()
        size = sum(bytes for _, bytes, _ in found)
        if size <= self.limit:
            return size
        for _, bytes, path in sorted(found):
            if size <= self.limit - self.limit // 8:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            size -= bytes
        return size

    def _entries(self) -> list[tuple[int, int, str]]:
        """The time of last use, the bytes and the path of each entry."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # another process has removed it
                    if entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        found.append((status.st_mtime_ns, status.st_size, entry.path))
        return found


def current() -> ObjectStore | None:
    """The store in the folder that `PALLADIO_CACHE` names at present, or None if caching is off."""
    folder = knobs.cache_folder()
    return None if folder is None else ObjectStore(folder)


def compiled_once(key: str, compile: Callable[[], bytes]) -> tuple[bytes, bool]:
    """The code of a key, from the store of this process or compiled now and kept there; and whether it was compiled."""
    store = current()
    kept = None if store is None else store.get(key)
    if kept is not None:
        return kept, False
    code = compile()
    if store is not None:
        store.put(key, code)
    return code, True
