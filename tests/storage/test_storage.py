from __future__ import annotations

import errno
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedray.core.types import RunError
from fedray.storage.base import Storage
from fedray.storage.bucket import ObjectStorage
from fedray.storage.files import StorageError, faults, in_place_of, write_atomically
from fedray.storage.local import LocalStorage
from fedray.storage.opening import open_storage
from tests.stores import small_disk


@pytest.fixture(params=["disk", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "run" if request.param == "disk" else request.getfixturevalue("bucket")())


ODD = "a folder/100% #1?/ü=[x].txt"


def test_files_come_back(storage: Storage) -> None:
    assert (storage.files(), storage.names(), storage.exists("a")) == ([], [], False)
    storage.write("a", b"one")
    storage.write("a", b"two")
    storage.write(ODD, b"")
    storage.write("deep/er/b", b"\x00" * 11_000_000)  # more than one part of an upload
    assert (
        storage.read("a") == b"two" and storage.read(ODD) == b"" and storage.read("deep/er/b") == b"\x00" * 11_000_000
    )
    assert storage.exists("a") and storage.exists(ODD) and not storage.exists("deep")
    assert storage.files() == sorted(["a", ODD, "deep/er/b"]) and storage.files("deep") == ["er/b"]
    assert storage.names() == ["a", "a folder", "deep"] and storage.names("none") == []
    assert storage.child("deep").child("er").read("b") == storage.read("deep/er/b")
    for name in ("none", "deep/none", "none/a"):
        with pytest.raises(FileNotFoundError, match=name):
            storage.read(name)


def test_removing(storage: Storage) -> None:
    for name in ("a", "b", "tree/c", "tree/deep/d", "kept"):
        storage.write(name, b"x")
    storage.remove("a", "b", "tree", "never there", "never/there")
    assert storage.files() == ["kept"]
    storage.remove()


def test_folders_go_up_and_down(storage: Storage, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "a").write_bytes(b"a")
    (source / "deep" / "b").write_bytes(b"b" * 9_000_000)
    storage.upload(source, "model")
    assert storage.files("model") == ["a", "deep/b"]
    storage.download("model", tmp_path / "back")
    assert (tmp_path / "back" / "deep" / "b").read_bytes() == b"b" * 9_000_000
    with pytest.raises(FileNotFoundError, match="none"):
        storage.get({"model/none": tmp_path / "none"})
    assert (
        sorted(path.name for path in (tmp_path / "back").iterdir()) == ["a", "deep"]
        and not (tmp_path / "none").exists()
    )


def test_it_pickles(storage: Storage) -> None:
    storage.child("x y").write("a", b"1")
    again = pickle.loads(pickle.dumps(storage.child("x y")))
    assert again.read("a") == b"1" and again.place == storage.child("x y").place
    assert open_storage(again.place).read("a") == b"1"  # a place shown in a message can be opened


def test_checked_before_a_run(storage: Storage, tmp_path: Path) -> None:
    storage.check()
    assert storage.files() == []
    (tmp_path / "file").touch()
    with pytest.raises(
        ValueError, match="file: cannot be written to and read: .*; check the folder and its permissions"
    ):
        open_storage(tmp_path / "file").check()


def test_a_bucket_that_is_not_there(bucket: Callable[[], str]) -> None:
    storage = open_storage(bucket().replace("s3://bucket", "s3://other"))
    with pytest.raises(
        ValueError,
        match=r"s3://other/.*: cannot be written to and read: .*NO_SUCH_BUCKET.*check that the bucket exists, the cred",
    ):
        storage.check()
    with pytest.raises(StorageError, match=r"s3://other/\w+/a: cannot be written: .*NO_SUCH_BUCKET"):
        storage.write("a", b"")


def test_a_store_that_is_gone(bucket: Callable[[], str], tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    storage = open_storage(f"s3://bucket/run?region=x&scheme=http&endpoint_override=127.0.0.1:{port}")
    with pytest.raises(
        StorageError,
        match=r"s3://bucket/run/a: cannot be written: .*NETWORK.* lost: check that the store .* `fedray resume`",
    ):
        storage.write("a", b"")


def test_paths_and_uris(tmp_path: Path) -> None:
    assert open_storage(f"file://{tmp_path}").local == tmp_path == open_storage(str(tmp_path)).local
    assert open_storage("runs/a").place == "runs/a" and isinstance(open_storage("s3:x"), LocalStorage)
    storage = open_storage("s3://bucket/runs/a/?region=eu-west-1")
    assert (storage.local, storage.place) == (None, "s3://bucket/runs/a?region=eu-west-1")
    assert (
        storage.shown("x/y") == "s3://bucket/runs/a/x/y"
        and storage.child("ü ?").place == "s3://bucket/runs/a/%C3%BC%20%3F?region=eu-west-1"
    )


@pytest.mark.parametrize(
    "uri, says",
    [
        ("s3://", "names no bucket"),
        ("s3:///folder", "Missing bucket name"),
        ("s4://bucket/x", "Unrecognized filesystem type"),
        ("s3://bucket/with space", "Cannot parse URI"),
        ("s3://bucket/x?colour=red", "Unexpected query parameter"),
        (Path("s3://bucket/x"), "two slashes"),
    ],
)
def test_what_is_not_a_place(uri: str | Path, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        open_storage(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://KEYNAME:TOPSECRET@bucket/run?region=x",
        "s3://KEYNAME:TOPSECRET@bucket/with space",
        "s3://KEYNAME:TOP/SECRET@bucket/run",
        "s3://KEYNAME:TOPSECRET@bucket/run?secret_key=TOPSECRET",
        "abfs://container:TOPSECRET@account.dfs.core.windows.net/run?sas_token=TOPSECRET",
    ],
)
def test_secrets_are_not_shown(uri: str) -> None:
    try:
        storage = open_storage(uri)
    except ValueError as error:
        assert error.__cause__ is None and error.__suppress_context__
        said = str(error)
    else:
        said = storage.place + storage.shown("a") + storage.child("b").place + repr(storage)
    assert "SECRET" not in said and "KEYNAME" not in said


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EIO])
def test_what_is_the_storage_s_fault(number: int) -> None:
    with (
        pytest.raises(
            StorageError,
            match=f"^run/a: cannot be written: .*{os.strerror(number)}.*Nothing that was committed is lost",
        ) as caught,
        faults("run/a"),
    ):
        raise OSError(number, os.strerror(number))
    assert isinstance(caught.value, RunError) and str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(StorageError, match="^run/a: "), faults("run/b"), faults("run/a"):
        raise OSError(number, "the first to know says so")


@pytest.mark.parametrize(
    "error",
    [PermissionError(errno.EACCES, "no"), FileNotFoundError("no"), OSError("no number"), RuntimeError("x"), KeyError()],
)
def test_what_is_not(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, faults("run/a"):
        raise error
    assert caught.value is error


def test_a_full_disk(tmp_path: Path) -> None:
    """Bytes, torch's own writer, a copy and a temporary folder fail cleanly; other tests cover pyarrow."""
    with small_disk(tmp_path / "disk", "1m") as disk:
        storage = open_storage(disk)
        storage.write("a", b"old")
        writes = {
            "bytes": lambda: storage.write("a", bytes(2_000_000)),
            "torch": lambda: write_atomically(disk / "a", lambda path: torch.save(torch.zeros(1_000_000), path)),
            "copy": lambda: storage.put({"a": large}),
        }
        large = tmp_path / "large"
        large.write_bytes(bytes(2_000_000))
        for write in writes.values():
            with pytest.raises(
                StorageError, match="disk/a: cannot be written: .*free space there, then repeat the command"
            ):
                write()
            assert storage.files() == ["a"] and storage.read("a") == b"old"
        with pytest.raises(StorageError, match="disk/model: cannot be written"), in_place_of(disk / "model") as folder:
            folder.mkdir()
            (folder / "weights").write_bytes(bytes(2_000_000))
        assert storage.files() == ["a"]


def test_the_end_of_a_process_is_quiet(bucket: Callable[[], str]) -> None:
    """The AWS libraries must be shut down before a process ends; otherwise pyarrow complains."""
    code = (
        "import sys; from fedray.storage.opening import open_storage; s = open_storage(sys.argv[1]); "
        "s.write('a', b'x'); print(s.read('a'))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, bucket()], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'x'\n", "")


def test_local_files_alone_need_no_aws(tmp_path: Path) -> None:
    code = (
        "import sys; from fedray.storage.opening import open_storage; open_storage('x').exists('a'); "
        "assert 'pyarrow._s3fs' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=tmp_path)


def test_object_storage_is_opened_without_a_request() -> None:
    assert isinstance(open_storage("s3://no-such-bucket-anywhere/x?region=eu-west-1"), ObjectStorage)
