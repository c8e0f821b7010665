"""The test cluster, started once for all tests that use it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import yaml

from jobs import Jobs
from testbed import NAMESPACE, Node, Testbed
from testbed.build import find_build
from testbed.paths import Paths
from testbed.report import keep, tail
from testbed.requirements import missing

_ROLES = Path(__file__).resolve().parents[2] / "kuberay" / "rbac"
_HAS_FAILED = pytest.StashKey[bool]()
_KEPT = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def testbed(request: pytest.FixtureRequest) -> Iterator[Testbed]:
    """
    The cluster of this checkout.

    One that runs already is used, with the present source, and goes on running.
    """
    _skip_where_it_cannot_run()
    was_running = Testbed.find() is not None
    cluster = Testbed.up()
    yield cluster
    if request.config.stash.get(_HAS_FAILED, False):
        request.config.stash[_KEPT] = keep(cluster.logs, cluster.kubectl)
    if not was_running:
        cluster.down()


@pytest.fixture
def second_node(testbed: Testbed) -> Iterator[Node]:
    """A node that a test may kill; afterwards it has power again."""
    node = testbed.node("node-1")
    yield node
    node.restore()


@pytest.fixture(scope="session")
def researcher(testbed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubeconfig of somebody who may do what the roles of kuberay/rbac allow, and no more."""
    testbed.kubectl("apply", "-k", str(_ROLES))
    testbed.kubectl("apply", "-f", str(Path(__file__).with_name("researcher.yaml")))
    token = testbed.kubectl("-n", NAMESPACE, "create", "token", "researcher", "--duration=6h")
    config = yaml.safe_load(testbed.kubeconfig.read_text(encoding="utf-8"))
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token.strip()}}]
    file = tmp_path_factory.mktemp("researcher") / "kubeconfig"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def jobs(
    testbed: Testbed,
    researcher: Path,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Jobs]:
    """The command line against the test cluster, in an environment as a user has it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in testbed.environment.items():
            if name.startswith(("AWS_", "MLFLOW_")):
                patch.setenv(name, value)
        users = Jobs(testbed, researcher, tmp_path_factory.mktemp("jobs"))
        yield users
        if request.config.stash.get(_HAS_FAILED, False):
            users.delete_all()  # what failed may have left a job, whose room others need


def _skip_where_it_cannot_run() -> None:
    paths = Paths.default()
    lacking = missing(paths, builds=False)
    if lacking:
        pytest.skip(f"the test cluster needs {'; '.join(lacking)}")
    if not find_build(paths).is_complete:
        pytest.skip("the test cluster is not compiled: make cluster-build")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember that a test on the cluster has failed."""
    report = yield
    if report.failed and "testbed" in getattr(item, "fixturenames", ()):
        item.config.stash[_HAS_FAILED] = True
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say where the logs of the cluster are kept, and the worst of them."""
    folder = config.stash.get(_KEPT, None)
    if folder:
        terminalreporter.section("test cluster")
        terminalreporter.line(tail(folder))
        terminalreporter.line(f"All logs and objects: {folder}")
