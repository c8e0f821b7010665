"""What travels to a cluster, what does not, and that the same files are the same archive."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from footplate.data.manifest import DataFile, DataManifest, RowGroup, SchemaField
from footplate.errors import SpecError
from footplate.runs.code_archive import CodeArchive, make_archive
from footplate.runs.code_size import Limit
from footplate.spec import Job, load

_RECIPES = Path(__file__).parents[2] / "rayjobs"
_AWS_KEY = "AKIA" + "Q" * 16


def _write(folder: Path, **files: str | bytes) -> None:
    """Write files; ``__`` in a keyword stands for a slash, ``_py`` at its end for ``.py``."""
    for keyword, content in files.items():
        name = keyword.replace("__", "/")
        path = folder / (f"{name[:-3]}.py" if name.endswith("_py") else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def _git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    subprocess.run(command, check=True, capture_output=True)


def _job(folder: Path, **changes: Any) -> Job:
    values: dict[str, Any] = {
        "name": "toy",
        "entrypoint": "train:train",
        "limits": {"epochs": 1},
        "code": ".",
        **changes,
    }
    return Job.from_dict(values, folder=folder, source="toy.toml")


def _packed(job: Job, **options: Any) -> CodeArchive:
    archive = make_archive(job, **options)
    assert archive is not None
    return archive


def _names(archive: CodeArchive) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(archive.content)).namelist()


def _refused(job: Job, **options: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        make_archive(job, **options)
    return [str(problem) for problem in caught.value.problems]


def _manifest(folder: Path, *names: str) -> Path:
    """A data manifest with files of a few bytes, as far as packing looks at them."""
    files = []
    group = RowGroup(rows=3, offsets=(4,), sizes=(0,), digests=("",), values=(None,))
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1\0")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        files.append(DataFile(path=name, size=5, row_groups=(group,), sha256=digest))
    fields = (SchemaField(name="x", type="int64"),)
    manifest = DataManifest(name="toy", files=tuple(files), fields=fields)
    file = folder / f"toy-{manifest.version}.json"
    file.write_bytes(manifest.to_json())
    return file


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a module to train."""
    folder = tmp_path / "project"
    _write(folder, train_py="def train(ctx): pass\n")
    return folder


def test_code_of_a_folder(project: Path) -> None:
    """All of it, named by what it holds."""
    _write(project, model__net_py="x = 1\n")
    archive = _packed(_job(project))
    assert _names(archive) == ["model/net.py", "train.py"]
    assert archive.files == 2
    assert archive.folder == "."
    assert archive.digest == f"sha256:{hashlib.sha256(archive.content).hexdigest()}"


def test_paths_keep_their_places(tmp_path: Path) -> None:
    """Code, data and prepare files beside the spec's folder stand there in the archive, too."""
    _write(tmp_path, src__train_py="", src__lib__a_py="", unrelated_py="", src2__other_py="")
    _write(tmp_path, prep__make_py="def make(): ...", prep__helper_py="", prep__notes="")
    _write(tmp_path, prep__deeper__no_py="")
    manifest = _manifest(tmp_path / "data" / "set", "a.parquet", "more/b.parquet")
    _write(tmp_path, data__set__stray="no")
    (tmp_path / "jobs" / "team").mkdir(parents=True)
    job = _job(
        tmp_path / "jobs" / "team",
        code="../../src",
        data={
            "train": {"manifest": f"../../data/set/{manifest.name}", "batch_size": 1},
            "valid": {"prepare": "../../prep/make.py:make", "batch_size": 1},
        },
    )
    archive = _packed(job)
    assert archive.folder == "jobs/team"
    assert _names(archive) == [
        "data/set/a.parquet",
        "data/set/more/b.parquet",
        f"data/set/{manifest.name}",
        "prep/helper.py",
        "prep/make.py",
        "src/lib/a.py",
        "src/train.py",
    ]


def test_data_and_prepare_files_travel_though_ignored(project: Path) -> None:
    """Who names them means them."""
    manifest = _manifest(project / "data", "a.parquet")
    _write(project, make_py="def make(): ...")
    (project / ".gitignore").write_text("data/\nmake.py\n")
    job = _job(
        project,
        data={
            "train": {"manifest": f"data/{manifest.name}", "batch_size": 1},
            "valid": {"prepare": "make.py:make", "batch_size": 1},
        },
    )
    expected = [".gitignore", "data/a.parquet", f"data/{manifest.name}", "make.py", "train.py"]
    assert _names(_packed(job)) == expected


def test_code_of_the_image(project: Path) -> None:
    """An absolute folder stays where it is; what else is relative travels."""
    _write(project, make_py="def make(): ...")
    assert make_archive(_job(project, code="/opt/code")) is None
    data = {
        "train": {"manifest": "/mnt/data/toy-0123456789abcdef.json", "batch_size": 1},
        "valid": {"manifest": "s3://bucket/toy-0123456789abcdef.json", "batch_size": 1},
    }
    assert make_archive(_job(project, code="/opt/code", data=data)) is None
    data = {"train": {"prepare": "make.py:make", "batch_size": 1}}
    assert _names(_packed(_job(project, code="/opt/code", data=data))) == ["make.py", "train.py"]


@pytest.mark.parametrize("recipe", ["digits", "textlm"])
def test_recipes_travel(recipe: str) -> None:
    """The recipes bring their code and data, and nothing else of the repository."""
    archive = _packed(load(_RECIPES / f"{recipe}.toml"))
    assert archive.folder == "rayjobs"
    assert f"rayjobs/{recipe}.py" in _names(archive)
    assert {name.partition("/")[0] for name in _names(archive)} == {"datasets", "rayjobs"}


def test_same_files_same_bytes(tmp_path: Path) -> None:
    """Times, the umask, the order of creation and the place make no difference."""
    names = ["b.py", "a.py", "é.py", "sub/c.py", "Z.py"]
    archives: list[CodeArchive] = []
    for place, order, umask in (("one", names, 0o022), ("two", names[::-1], 0o077)):
        before = os.umask(umask)
        for name in order:
            file = tmp_path / place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name)
            os.utime(file, (len(archives), 1e9))
        os.umask(before)
        archives.append(_packed(_job(tmp_path / place)))
    assert archives[0] == archives[1]
    assert _names(archives[0]) == ["Z.py", "a.py", "b.py", "sub/c.py", "é.py"]


def test_same_bytes_in_another_locale(project: Path) -> None:
    """A name that is no ASCII is the same in a process that knows nothing else."""
    _write(project, é_py="x")
    program = (
        "import sys; from pathlib import Path; from footplate.spec import Job\n"
        "from footplate.runs.code_archive import make_archive\n"
        "job = Job.from_dict({'name': 'toy', 'entrypoint': 'train:train', 'code': '.',\n"
        "    'limits': {'epochs': 1}}, folder=Path(sys.argv[1]), source='toy')\n"
        "print(make_archive(job).digest)"
    )
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONUTF8": "0"}
    environment["PYTHONCOERCECLOCALE"] = "0"
    done = subprocess.run(
        [sys.executable, "-c", program, str(project)],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert done.stdout.strip() == _packed(_job(project)).digest


def test_what_changes_the_digest(project: Path) -> None:
    """Content, a name, or whether a file can be run."""
    digests = {_packed(_job(project)).digest}
    _write(project, train_py="def train(ctx): return\n")
    digests.add(_packed(_job(project)).digest)
    (project / "train.py").chmod(0o755)
    digests.add(_packed(_job(project)).digest)
    _write(project, other_py="")
    digests.add(_packed(_job(project)).digest)
    assert len(digests) == 4


def test_executable_files(project: Path) -> None:
    """The one bit of a file's mode that matters is kept."""
    _write(project, run="#!/bin/sh\n")
    (project / "run").chmod(0o700)
    (project / "train.py").chmod(0o600)
    with zipfile.ZipFile(io.BytesIO(_packed(_job(project)).content)) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    assert modes == {"run": stat.S_IFREG | 0o755, "train.py": stat.S_IFREG | 0o644}


@pytest.fixture
def unsaid(project: Path) -> Job:
    """A job that does not say which folder its code is."""
    values = {"name": "toy", "entrypoint": "train:train", "limits": {"epochs": 1}}
    return Job.from_dict(values, folder=project, source="toy")


def test_never_a_whole_repository_by_accident(project: Path, unsaid: Job) -> None:
    """Where code is not said, neither a repository, nor the home folder, nor the disk is sent."""
    assert make_archive(unsaid) is not None
    _git(project, "init", "--quiet")
    (problem,) = _refused(unsaid)
    assert problem == (
        f"code: is not set, so the folder of the spec would travel, and {project} is the root of "
        "a repository: set code to the folder with your module, or to '.' if all of it is meant"
    )
    assert _refused(unsaid.replace(seed=1)) == [problem]
    assert make_archive(unsaid.replace(code=".")) is not None
    (problem,) = _refused(unsaid.at(Path("/")))
    assert "/ is the root of the file system" in problem


def test_never_the_home_folder_by_accident(
    project: Path, unsaid: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spec may stand there all the same."""
    monkeypatch.setenv("HOME", str(project))
    assert "is your home folder" in _refused(unsaid)[0]
    assert make_archive(unsaid.replace(code=".")) is not None


def test_secrets_stay(project: Path) -> None:
    """All of them are named, none is shown, and the way out is said."""
    _write(project, config__token_py=f"a = 1\nkey = '{_AWS_KEY}'\n", server="x")
    (project / "server").rename(project / "server.pem")
    (project / ".env").write_text("x")
    (project / ".env.example").write_text("x")
    problems = _refused(_job(project))
    assert [problem.partition(":" + " keep")[0] for problem in problems] == [
        "code: .env would travel, and .env usually holds secrets",
        "code: config/token.py would travel, and its line 2 holds an AWS access key id",
        "code: server.pem would travel, and *.pem usually holds secrets",
    ]
    assert all(".gitignore" in problem and "Kubernetes Secret" in problem for problem in problems)
    assert _AWS_KEY not in "".join(problems)
    (project / ".gitignore").write_text(".env\n*.pem\nconfig/\n")
    assert _names(_packed(_job(project))) == [".env.example", ".gitignore", "train.py"]


def test_a_secret_behind_a_link(project: Path) -> None:
    """Another name makes it no less a secret."""
    (project / "deploy.key").write_text("x")
    (project / "settings").symlink_to("deploy.key")
    assert [problem.split()[1] for problem in _refused(_job(project))] == ["deploy.key", "settings"]


def test_too_much_is_refused(project: Path) -> None:
    """By size and by number, before anything is read; other problems are told with it."""
    _write(project, data__big=b"x" * 5000)
    (project / "broken").symlink_to("nowhere")
    link, size = _refused(_job(project), limit=Limit(size=1000))
    assert "broken is a symbolic link to nowhere" in link
    assert size.startswith("code: 4.9 KiB in 2 files would travel, and at most 1000 bytes")
    assert "data/big" in size
    assert "2 files would travel" in _refused(_job(project), limit=Limit(files=1))[-1]


def test_links_inside_become_what_they_lead_to(project: Path) -> None:
    """Files, folders, links to links, and links in linked folders."""
    _write(project, lib__a_py="a", lib__deep__b_py="b")
    (project / "one.py").symlink_to("lib/a.py")
    (project / "two.py").symlink_to("one.py")
    (project / "lib" / "c.py").symlink_to("../train.py")
    (project / "all").symlink_to(project / "lib")
    archive = zipfile.ZipFile(io.BytesIO(_packed(_job(project)).content))
    assert {name: archive.read(name) for name in archive.namelist()} == {
        "all/a.py": b"a",
        "all/c.py": (project / "train.py").read_bytes(),
        "all/deep/b.py": b"b",
        "lib/a.py": b"a",
        "lib/c.py": (project / "train.py").read_bytes(),
        "lib/deep/b.py": b"b",
        "one.py": b"a",
        "train.py": (project / "train.py").read_bytes(),
        "two.py": b"a",
    }


def test_links_that_lead_elsewhere(project: Path) -> None:
    """Each is refused by its name, and why."""
    _write(project, ignored__x="x", a__x_py="", b__x_py="")
    (project / ".gitignore").write_text("ignored\n")
    (project / "dangling").symlink_to("nowhere")
    (project / "ignoring").symlink_to("ignored")
    (project / "loop").symlink_to("loop")
    (project / "outward").symlink_to("/etc/hostname")
    (project / "upward").symlink_to(".")
    (project / "a" / "to_b").symlink_to("../b")
    (project / "b" / "to_a").symlink_to("../a")
    problems = _refused(_job(project))
    assert [problem.replace(f"{project}/", "") for problem in problems] == [
        "code: a/to_b is a symbolic link to b, a folder that it stands in",
        "code: b/to_a is a symbolic link to a, a folder that it stands in",
        "code: dangling is a symbolic link to nowhere, which is not there",
        "code: ignoring is a symbolic link to ignored, which is ignored and does not travel",
        "code: loop is a symbolic link to loop, which is not there",
        f"code: outward is a symbolic link to {Path('/etc/hostname').resolve()}, outside of "
        f"{project}",
        f"code: upward is a symbolic link to {project}, a folder that it stands in",
    ]


def test_a_spec_that_goes_through_a_link(tmp_path: Path) -> None:
    """What the spec reaches through a link stands where the spec says."""
    _write(tmp_path, elsewhere__code__train_py="", spec__x="")
    (tmp_path / "spec" / "code").symlink_to("../elsewhere/code")
    archive = _packed(_job(tmp_path / "spec", code="code"))
    assert (_names(archive), archive.folder) == (["code/train.py"], ".")
    _write(tmp_path, elsewhere__lib__train_py="")
    (problem,) = _refused(_job(tmp_path / "spec", code="code/../lib"))
    assert problem.startswith("code: 'code/../lib' has a '..' after a symbolic link")


def test_special_files_are_left_out(project: Path) -> None:
    """As git does; reading a pipe would wait for ever."""
    os.mkfifo(project / "pipe")
    assert _names(_packed(_job(project))) == ["train.py"]


def test_names_that_are_no_text(project: Path) -> None:
    """Refused, as no zip file can say them; told in a way that any terminal can show."""
    Path(os.fsdecode(os.fsencode(project) + b"/caf\xe9.py")).touch()
    (problem,) = _refused(_job(project))
    assert problem == r"code: 'caf\udce9.py': its name is not UTF-8; rename it"


def test_names_that_differ_only_in_case(project: Path) -> None:
    """Pods run Linux, where they are two files."""
    _write(project, Train_py="")
    assert _names(_packed(_job(project))) == ["Train.py", "train.py"]


def test_a_module_that_git_ignores(project: Path) -> None:
    """It runs here and would not be there: said before anything is sent."""
    _write(project, other_py="")
    (project / ".gitignore").write_text("train.py\n")
    assert _refused(_job(project)) == [
        f"entrypoint: {project}/train.py is ignored by git and does not travel"
    ]


def test_nothing_to_send(tmp_path: Path) -> None:
    """No folder, or one with nothing in it, is no code."""
    assert _refused(_job(tmp_path, code="missing")) == [f"code: {tmp_path}/missing is no folder"]
    (tmp_path / "empty").mkdir()
    (problem,) = _refused(_job(tmp_path, code="empty"))
    assert problem == f"code: {tmp_path}/empty has no files that could travel"


def test_data_that_is_not_there(project: Path) -> None:
    """All of it is told at once."""
    manifest = _manifest(project, "a.parquet")
    (project / "a.parquet").unlink()
    (project / "linked.json").symlink_to(manifest.name)
    data = {
        "first": {"manifest": manifest.name, "batch_size": 1},
        "second": {"manifest": "none.json", "batch_size": 1},
        "third": {"prepare": "none.py:make", "batch_size": 1},
        "fourth": {"manifest": "linked.json", "batch_size": 1},
    }
    assert _refused(_job(project, data=data)) == [
        f"data.first.manifest: {manifest} names a.parquet, which is not there",
        f"data.second.manifest: there is no data manifest at {project}/none.json",
        f"data.third.prepare: there is no file {project}/none.py",
        f"data.fourth.manifest: {project}/linked.json is a symbolic link to {manifest}; "
        "name the manifest itself",
    ]


def test_git_that_fails_is_told_with_its_key(project: Path) -> None:
    """The problem is the code's, or that of the data whose prepare file it is."""
    _git(project, "init", "--quiet")
    (project / ".git" / "index").write_text("not an index")
    _write(project, make_py="def make(): ...")
    data = {"train": {"prepare": "make.py:make", "batch_size": 1}}
    code, nothing, prepare = _refused(_job(project, data=data))
    assert code.startswith("code: git does not say")
    assert nothing == f"code: {project} has no files that could travel"
    assert prepare.startswith("data.train.prepare: git does not say")
