"""Code arrives as it was sent, once a node, and nothing else is ever written."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from footplate.errors import DataError, ObjectNotFoundError, StoreError, StoreFullError
from footplate.runs.code_archive import CodeArchive, make_archive
from footplate.runs.secret_files import secret_name
from footplate.runs.validate import find_problems
from footplate.spec import Job, load
from footplate.store import RunRecord, Store, code_archive_path
from footplate.train.code import unpack

_RECIPES = Path(__file__).parents[2] / "rayjobs"


def _record(digest: str | None, folder: str | None = ".") -> RunRecord:
    code: dict[str, Any] = {} if digest is None else {"archive": digest}
    return RunRecord(
        uid="uid", namespace="ns", name="toy", created=1.0, spec={}, folder=folder, code=code
    )


def _sent(store: Store, content: bytes) -> RunRecord:
    """The record of a run whose archive is in the store."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    store.create(code_archive_path(digest), content)
    return _record(digest)


def _job(folder: Path, **changes: Any) -> Job:
    values: dict[str, Any] = {"name": "toy", "entrypoint": "train:train", "code": "."}
    values |= {"limits": {"epochs": 1}, **changes}
    return Job.from_dict(values, folder=folder, source="toy")


def _packed(job: Job) -> CodeArchive:
    archive = make_archive(job)
    assert archive is not None
    return archive


def _tree(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Every file below a folder: what it holds and whether it can be run."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), os.access(path, os.X_OK))
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(str(tmp_path / "store"))


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Where a node keeps code; made when it is first needed."""
    return tmp_path / "node" / "code"


def test_archives_stand_beside_the_namespaces() -> None:
    """By their content: every run that has the same code shares one."""
    assert code_archive_path("sha256:0123") == "code/0123.zip"


@pytest.mark.parametrize("recipe", ["digits", "textlm"])
def test_recipes_work_where_they_arrive(store: Store, node: Path, recipe: str) -> None:
    """Everything that the spec names is found from the unpacked folder."""
    job = load(_RECIPES / f"{recipe}.toml")
    archive = _packed(job)
    record = _sent(store, archive.content).model_copy(update={"folder": archive.folder})

    folder = unpack(record, store, node)

    assert folder.is_relative_to(node)
    assert (folder / f"{recipe}.py").read_bytes() == (_RECIPES / f"{recipe}.py").read_bytes()
    there = load(folder / f"{recipe}.toml")
    assert there.to_dict() == job.to_dict()
    assert find_problems(there) == ()
    assert Path(there.path(there.code)) == folder.resolve()


_NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0."), min_size=1, max_size=8
).filter(lambda name: secret_name(name) is None and name != "__pycache__")
_FILES = st.dictionaries(
    st.lists(_NAMES, min_size=1, max_size=3).map(tuple),
    st.tuples(st.binary(max_size=64), st.booleans()),
    min_size=1,
    max_size=6,
)


@settings(deadline=None)
@given(files=_FILES)
@example(files={("a\\b",): (b"x", True), ("C:", "x"): (b"y", False), ("é", "…\n"): (b"", False)})
def test_what_is_packed_is_unpacked(
    tmp_path_factory: pytest.TempPathFactory, files: dict[tuple[str, ...], tuple[bytes, bool]]
) -> None:
    """Any names, any content, and the executable bit."""
    place = tmp_path_factory.mktemp("place")
    folder = place / "code"
    folder.mkdir()
    for parts, (content, is_executable) in files.items():
        path = folder.joinpath(*parts)
        if not path.is_dir() and not any(parent.is_file() for parent in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o755 if is_executable else 0o644)
    (folder / "train.py").touch()
    store = Store(str(place / "store"))

    unpacked = unpack(_sent(store, _packed(_job(folder)).content), store, place / "node")

    assert _tree(unpacked) == _tree(folder)


def test_a_record_without_archive(store: Store, node: Path, tmp_path: Path) -> None:
    """The code is here already: where the record says, or where the driver was started."""
    assert unpack(_record(None, str(tmp_path)), store, node) == tmp_path
    assert unpack(_record(None, None), store, node) == Path.cwd()
    assert not node.exists()


def test_a_folder_without_files(store: Store, node: Path, tmp_path: Path) -> None:
    """Relative paths start from the spec's folder, and it is there even if nothing is in it."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    archive = _packed(_job(tmp_path / "jobs", code="../src"))
    record = _sent(store, archive.content).model_copy(update={"folder": archive.folder})
    folder = unpack(record, store, node)
    assert (folder.name, folder.is_dir()) == ("jobs", True)
    assert (folder / "../src/train.py").is_file()


def _zip(*members: zipfile.ZipInfo, compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for member in members:
            archive.writestr(member, b"x" * 100, compress_type=compression)
    return buffer.getvalue()


def _member(name: str, kind: int = stat.S_IFREG) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (kind | 0o777) << 16
    return info


def test_done_once(store: Store, node: Path) -> None:
    """What is there is complete and is neither fetched nor changed again."""
    record = _sent(store, _zip(_member("train.py")))
    folder = unpack(record, store, node)
    (folder / "train.py").write_text("changed by the user's own code")
    store.delete(code_archive_path(str(record.code["archive"])))
    assert unpack(record, store, node) == folder
    assert (folder / "train.py").read_text() == "changed by the user's own code"


def test_goes_on_after_a_kill(store: Store, node: Path) -> None:
    """What a killed process left half-done is done anew."""
    record = _sent(store, _zip(_member("train.py")))
    half = node / f"{str(record.code['archive']).removeprefix('sha256:')}.partial"
    half.mkdir(parents=True)
    (half / "stray.py").touch()
    folder = unpack(record, store, node)
    assert list(_tree(folder)) == ["train.py"]
    assert not half.exists()


_PROCESS = """
import sys, zipfile
from pathlib import Path
from footplate.store import RunRecord, Store
from footplate.train.code import unpack

record = RunRecord.model_validate_json(sys.stdin.readline())
print("ready", flush=True)
sys.stdin.readline()
folder = unpack(record, Store(sys.argv[1]), Path(sys.argv[2]))
print(sum(path.is_file() for path in folder.rglob("*")), folder.stat().st_ino)
"""


def test_ranks_of_one_node_share_the_work(store: Store, node: Path) -> None:
    """Whoever comes first unpacks; all others find it whole."""
    record = _sent(store, _zip(*(_member(f"lib/m{number}.py") for number in range(500))))
    command = [sys.executable, "-c", _PROCESS, store.uri, str(node)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    ranks = [subprocess.Popen(command, **pipes) for _ in range(4)]  # type: ignore[call-overload]
    for rank in ranks:
        rank.stdin.write(record.model_dump_json() + "\n")
        rank.stdin.flush()
    assert [rank.stdout.readline() for rank in ranks] == ["ready\n"] * 4
    answers = [rank.communicate("go\n", timeout=60)[0].split() for rank in ranks]
    assert [files for files, _ in answers] == ["500"] * 4
    assert len({folder for _, folder in answers}) == 1
    assert sorted(path.suffix for path in node.iterdir()) == ["", ".lock"]


@pytest.mark.parametrize(
    "members",
    [
        [_member("/etc/passwd")],
        [_member("../outside.py")],
        [_member("a/../../outside.py")],
        [_member("./a.py")],
        [_member("a//b.py")],
        [_member("folder/")],
        [_member(".")],
        [_member("a"), _member("a/b")],
        [_member("link", stat.S_IFLNK)],
        [_member("device", stat.S_IFCHR)],
        [_member("folder", stat.S_IFDIR)],
        [_member("typeless", 0)],
    ],
)
def test_members_that_are_never_ours(
    store: Store, node: Path, members: list[zipfile.ZipInfo]
) -> None:
    """Nothing is written for an archive that would write elsewhere or anything but files."""
    record = _sent(store, _zip(*members))
    with pytest.raises(DataError, match=r"is no archive of code"):
        unpack(record, store, node)
    assert [path.suffix for path in node.iterdir()] == [".lock"]
    assert not (node.parent / "outside.py").exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_other_archives(store: Store, node: Path) -> None:
    """A name twice, compression, more bytes than the archive has, a hidden name, no zip at all."""
    overlapping = bytearray(_zip(_member("a.py"), _member("b.py")))
    second = overlapping.rfind(b"PK\1\2")
    overlapping[second + 42 : second + 46] = b"\0\0\0\0"  # both in the same bytes
    for content in (
        _zip(_member("a.py"), _member("a.py")),
        _zip(_member("a.py"), compression=zipfile.ZIP_DEFLATED),
        bytes(overlapping),
        _zip(_member("a.pyX../b")).replace(b"a.pyX../b", b"a.py\0../b"),
        b"",
        b"no zip",
    ):
        with pytest.raises(DataError, match=r"is no archive of code"):
            unpack(_sent(store, content), store, node)


def test_more_bytes_than_it_has(store: Store, node: Path) -> None:
    """A few bytes can't become many: what the members declare is added up before any is read."""
    content = bytearray(_zip(_member("a.py")))
    directory = content.rfind(b"PK\1\2")
    content[directory + 24 : directory + 28] = (1 << 30).to_bytes(4, "little")
    with pytest.raises(DataError, match="more bytes than itself"):
        unpack(_sent(store, bytes(content)), store, node)


@settings(deadline=None)
@given(place=st.integers(0, 10_000), change=st.integers(1, 255))
def test_any_damage_is_told_as_such(
    tmp_path_factory: pytest.TempPathFactory, place: int, change: int
) -> None:
    """Bytes that only look like an archive end in one error of ours, or in files of the node."""
    content = bytearray(_zip(_member("a.py"), _member("lib/b.py")))
    content[place % len(content)] ^= change
    folder = tmp_path_factory.mktemp("place")
    store = Store(str(folder / "store"))
    with suppress(DataError):
        unpack(_sent(store, bytes(content)), store, folder / "node")
    assert {path.name for path in folder.iterdir()} == {"store", "node"}


def test_a_damaged_archive(store: Store, node: Path) -> None:
    """Truncated or changed: it is not what was submitted, and nothing of it is used."""
    content = _zip(_member("train.py"))
    record = _sent(store, content)
    path = code_archive_path(str(record.code["archive"]))
    for damaged in (content[:-1], content.replace(b"xxxx", b"yyyy"), b""):
        store.put(path, damaged)
        with pytest.raises(DataError, match=rf"{path} is damaged: its {len(damaged)} bytes"):
            unpack(record, store, node)
        assert [found.suffix for found in node.iterdir()] == [".lock"]
    store.put(path, content)
    assert list(_tree(unpack(record, store, node))) == ["train.py"]


def test_a_missing_archive(store: Store, node: Path) -> None:
    """Says what is missing and how it comes back."""
    digest = f"sha256:{'0' * 64}"
    with pytest.raises(ObjectNotFoundError, match=r"not in the store: .*code/0+\.zip") as caught:
        unpack(_record(digest), store, node)
    assert "Submit the job again" in caught.value.hint


@pytest.mark.parametrize(
    ("digest", "folder"),
    [
        ("sha256:../../x", "."),
        ("0" * 64, "."),
        (f"sha256:{'0' * 64}", "/etc"),
        (f"sha256:{'0' * 64}", "a/../.."),
    ],
)
def test_a_record_that_leads_elsewhere(store: Store, node: Path, digest: str, folder: str) -> None:
    """Refused before anything is fetched."""
    with pytest.raises(DataError, match="names no archive of code"):
        unpack(_record(digest, folder), store, node)


def test_a_full_disk(store: Store, small_disk: Path) -> None:
    """Told as such, with nothing left behind; with space again it works."""
    record = _sent(store, _zip(*(_member(f"m{number}") for number in range(100))))
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(b"x" * 2**20)
    with pytest.raises(StoreFullError, match=r"can't be unpacked to .*No space left"):
        unpack(record, store, small_disk / "code")
    assert not list(small_disk.glob("code/*.partial"))
    with ballast.open("r+b") as file:
        file.truncate(2**16)
    with pytest.raises(StoreFullError):
        unpack(record, store, small_disk / "code")
    assert not list(small_disk.glob("code/*.partial"))


def test_a_place_that_can_not_be_written(store: Store, tmp_path: Path) -> None:
    """Said in words."""
    (tmp_path / "file").touch()
    record = _sent(store, _zip(_member("train.py")))
    with pytest.raises(StoreError, match=r"can't be unpacked to .*file"):
        unpack(record, store, tmp_path / "file" / "code")
