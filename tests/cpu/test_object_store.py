"""What is kept on disk: whole entries or none, within a limit, whatever else happens to the folder."""

import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import palladio as pl
from palladio.base import knobs, object_store
from palladio.base.errors import UnsafeCacheWarning
from palladio.base.object_store import ObjectStore

CODE = bytes(range(256)) * 8


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "kept")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def use_at(store: ObjectStore, key: str, seconds: int) -> None:
    """Let an entry look as if it had been used then."""
    os.utime(store.path(key), (seconds, seconds))


def test_what_was_kept_is_there(store):
    assert store.get("a") is None
    store.put("a", CODE)
    assert store.get("a") == CODE
    assert ObjectStore(store.folder).get("a") == CODE
    assert store.get("b") is None


def test_the_last_one_stays(store):
    store.put("a", CODE)
    store.put("a", CODE[1:])
    assert store.get("a") == CODE[1:]
    assert names(store.folder) == [store.path("a").name]


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, len(CODE), len(CODE) + 31])
def test_an_entry_cut_anywhere_is_not_there(store, length):
    store.put("a", CODE)
    store.path("a").write_bytes(store.path("a").read_bytes()[:length])
    assert store.get("a") is None


@pytest.mark.parametrize("place", [0, 31, 32, -1])
def test_an_entry_with_one_changed_bit_is_not_there(store, place):
    store.put("a", CODE)
    data = bytearray(store.path("a").read_bytes())
    data[place] ^= 1
    store.path("a").write_bytes(bytes(data))
    assert store.get("a") is None
    store.put("a", CODE)
    assert store.get("a") == CODE


def test_the_folder_is_for_its_owner_alone(store):
    store.put("a", CODE)
    assert stat.S_IMODE(store.folder.stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE(store.path("a").stat().st_mode) & 0o077 == 0


def test_a_folder_that_can_only_be_read_serves(store, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    store.put("a", CODE)
    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    monkeypatch.setattr(os, "utime", refuse)
    store.put("b", CODE)
    assert store.get("a") == CODE
    assert store.get("b") is None


def stale(*_: object, **__: object) -> None:
    raise OSError(116, "Stale file handle")


@pytest.mark.parametrize("call", ["open", "fstat", "utime", "unlink", "replace", "scandir", "mkdir"])
def test_a_network_folder_that_fails_costs_an_entry_at_most(store, monkeypatch, call):
    store.put("a", CODE)
    with monkeypatch.context() as failing:
        failing.setattr(os, call, stale)
        store.put("b", CODE)
        assert store.get("a") in (None, CODE)
        assert store.get("b") in (None, CODE)
    for key in "ab":
        store.put(key, CODE)
        assert store.get(key) == CODE


def test_a_rename_that_is_done_and_reported_as_failed(store, monkeypatch):
    """A network file system that repeats a request may say that the file to rename is not there."""
    rename = os.replace

    def repeated(source: str, target: str) -> None:
        rename(source, target)
        rename(source, target)

    monkeypatch.setattr(os, "replace", repeated)
    store.put("a", CODE)
    assert store.get("a") == CODE
    assert names(store.folder) == [store.path("a").name]


def test_an_entry_that_is_replaced_while_it_is_read_stays_whole(store, monkeypatch):
    store.put("a", CODE)
    status = os.fstat

    def replaced(file: int) -> os.stat_result:
        monkeypatch.setattr(os, "fstat", status)
        store.put("a", CODE[1:])
        return status(file)

    monkeypatch.setattr(os, "fstat", replaced)
    assert store.get("a") == CODE
    assert store.get("a") == CODE[1:]


def test_versions_with_other_checksums_share_a_folder(store, monkeypatch):
    store.put("a", CODE)
    with monkeypatch.context() as other:
        other.setattr(object_store, "_digest", lambda key, code: hashlib.sha256(code).digest())
        assert store.get("a") is None
        store.put("a", CODE)
        assert store.get("a") == CODE
    assert store.get("a") is None
    store.put("a", CODE)
    assert store.get("a") == CODE


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "Ctrl-C"])
def test_a_write_that_breaks_off_leaves_nothing(store, monkeypatch, error):
    def break_off(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "replace", break_off)
    if isinstance(error, OSError):
        store.put("a", CODE)
    else:
        with pytest.raises(KeyboardInterrupt):
            store.put("a", CODE)
    assert names(store.folder) == []


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    store = ObjectStore(tmp_path, limit=4 * len(CODE))
    for number, key in enumerate("abc"):
        store.put(key, CODE)
        use_at(store, key, 1000 + number)
    assert store.get("a") == CODE  # used now
    store.put("d", CODE)
    assert {key for key in "abcd" if store.get(key)} == {"a", "c", "d"}


def test_beyond_the_limit_an_eighth_is_made_free(tmp_path):
    store = ObjectStore(tmp_path, limit=16 * len(CODE))
    for number in range(15):
        store.put(f"{number}", CODE)
        use_at(store, f"{number}", 1000 + number)
    assert store.usage()[0] == 15
    store.put("last", CODE)  # with their checksums, more than fit
    assert names(tmp_path) == sorted(store.path(f"{key}").name for key in (*range(3, 15), "last"))


def test_the_folder_is_not_measured_for_each_entry(tmp_path, monkeypatch):
    entries = ObjectStore._entries
    measured = []
    monkeypatch.setattr(ObjectStore, "_entries", lambda store: measured.append(store) or entries(store))
    store = ObjectStore(tmp_path, limit=1000 * len(CODE))
    for number in range(50):  # together less than a sixteenth
        store.put(f"{number}", CODE)
    assert len(measured) == 1
    assert store.usage()[0] == 50


def test_what_a_killed_process_left_goes_too(tmp_path):
    store = ObjectStore(tmp_path, limit=2 * len(CODE))
    file, left = tempfile.mkstemp(".palladio", dir=tmp_path)
    os.write(file, CODE)
    os.close(file)
    os.utime(left, (1000, 1000))
    store.put("a", CODE)
    assert names(tmp_path) == [store.path("a").name]


def test_files_of_others_are_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_bytes(CODE)
    (tmp_path / "folder.palladio").mkdir()
    os.utime(tmp_path / "thesis.txt", (1000, 1000))
    store = ObjectStore(tmp_path, limit=0)
    store.put("a", CODE)
    assert names(tmp_path) == ["folder.palladio", "thesis.txt"]


RACE = """
import sys
from pathlib import Path
from palladio.base.object_store import ObjectStore

store = ObjectStore(Path(sys.argv[1]), limit=20_000)
codes = {f"{n}": bytes([n]) * (1000 + n) for n in range(40)}
print("ready", flush=True)
sys.stdin.readline()
hits = 0
for _ in range(10):
    for key, code in codes.items():
        found = store.get(key)
        assert found in (None, code), key
        hits += found is not None
        store.put(key, code)
assert hits, "nothing was ever found"
"""


def test_processes_that_race_see_whole_entries_or_none(tmp_path):
    """They read, write, replace and remove the same entries at once, for there is no place for all of them."""
    command = [sys.executable, "-c", RACE, str(tmp_path / "kept")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    racing = [subprocess.Popen(command, text=True, **pipes) for _ in range(4)]
    for process in racing:
        process.stdout.readline()
    for process in racing:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in racing:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert sum(path.stat().st_size for path in (tmp_path / "kept").iterdir()) <= 20_000


@pytest.mark.parametrize("chosen", ["", "~no-user-of-this-name/kept"], ids=["by default", "chosen"])
def test_without_a_home_nothing_is_kept(monkeypatch, chosen):
    def unknown(_: object) -> None:
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PALLADIO_CACHE", chosen)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert knobs.cache_folder() is None
    assert object_store.current() is None


def test_the_default_folder_is_in_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("PALLADIO_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert knobs.cache_folder() == tmp_path / ".cache" / "palladio"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert knobs.cache_folder() == tmp_path / "elsewhere" / "palladio"


# Code that another user put there.


@pytest.fixture
def nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_warned", set())


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file or folder belong to another user."""
    if os.geteuid() == 0:
        os.chown(path, 4242, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)


def test_an_entry_under_the_key_of_another_is_not_there(store):
    store.put("five", CODE)
    os.replace(store.path("five"), store.path("seven"))
    assert store.get("seven") is None


@pytest.mark.parametrize("target", ["an entry", "/dev/zero"])
def test_a_link_is_not_followed(store, target, tmp_path):
    store.put("a", CODE)
    os.rename(store.path("a"), tmp_path / "elsewhere")
    store.path("a").symlink_to(tmp_path / "elsewhere" if target == "an entry" else target)
    assert store.get("a") is None


def test_a_named_pipe_is_not_waited_for(store):
    store.put("b", CODE)
    os.mkfifo(store.path("a"))
    found = []
    reader = threading.Thread(target=lambda: found.append(store.get("a")), daemon=True)
    reader.start()
    reader.join(timeout=60)
    assert found == [None]


def test_an_entry_that_others_can_write_to_is_not_there(store):
    store.put("a", CODE)
    store.path("a").chmod(0o620)
    assert store.get("a") is None
    store.put("a", CODE)
    assert store.get("a") == CODE


def test_an_entry_of_another_user_is_not_there(store, monkeypatch):
    store.put("a", CODE)
    monkeypatch.setattr(ObjectStore, "safe", lambda store: True)
    give_away(store.path("a"), monkeypatch)
    assert store.get("a") is None


def test_an_entry_beyond_the_limit_is_not_read(store):
    store.put("a", CODE)
    assert ObjectStore(store.folder, limit=len(CODE)).get("a") is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused_once(store, nothing_warned, mode):
    store.put("a", CODE)
    store.folder.chmod(mode)
    with pytest.warns(UnsafeCacheWarning) as warned:
        assert store.get("a") is None
    assert str(warned[0].message) == (
        f"compiled kernels are not kept in {store.folder}: other users can write to it (mode {mode:04o}), "
        "and what lies there is run\n"
        "  hint:     make it your own and `chmod go-w` it, or name another folder in PALLADIO_CACHE (`0` for none)"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put("b", CODE)
        assert store.get("a") is None
    assert names(store.folder) == [store.path("a").name]
    store.folder.chmod(0o755)
    assert store.get("a") == CODE


def test_a_folder_of_another_user_is_refused(store, nothing_warned, monkeypatch):
    store.put("a", CODE)
    give_away(store.folder, monkeypatch)
    with pytest.warns(UnsafeCacheWarning, match=r"it belongs to another user \(uid \d+\), and what lies there is run"):
        assert store.get("a") is None


@pytest.mark.usefixtures("nothing_warned")
def test_kernels_run_without_a_folder_that_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PALLADIO_CACHE", str(tmp_path))
    tmp_path.chmod(0o777)
    call = pl.pallas_call(
        lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] * 7),
        pl.ShapeDtypeStruct((8,), np.int32),
        interpret="cpu",
    )
    with pytest.warns(UnsafeCacheWarning):
        np.testing.assert_array_equal(call(np.arange(8, dtype=np.int32)), 7 * np.arange(8))
    assert names(tmp_path) == []
