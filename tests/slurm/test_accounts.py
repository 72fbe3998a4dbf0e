"""A cluster that knows who may use it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm import accounts
from tests.slurm.cluster import Cluster, is_here
from tests.slurm.conftest import Study, wait_until


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Study]:
    if not is_here() or not accounts.is_here():
        reason = "not installed: slurmctld, slurmdbd or mariadbd, or this is not root"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    place = tmp_path / "cluster"
    place.mkdir()
    known = accounts.Accounts(place)
    cluster = Cluster(place, more=known.more)
    for words in (("account", "lab"), ("user", "root", "account=lab")):
        cluster.ask("sacctmgr", "-i", "add", *words)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    yield Study(Path.cwd(), cluster)
    cluster.stop()
    known.stop()


def test_a_wrong_account_or_quality_of_service_is_told_before_anything_happens(study: Study) -> None:
    text = 'template: "echo [n] >> runs"\nengine: {{slurm: {{agents: 1, {setting}}}}}\n---\nn: [1, 2]\n'
    refused = {
        "account: nobody": "Invalid account or account/partition combination",
        "account: lab, qos: express": "Invalid qos specification",
    }
    for setting, message in refused.items():
        study.write(text.format(setting=setting))
        done = study("run", "--on", "slurm")
        assert done.returncode == 2
        assert message in done.stderr
        assert "sacctmgr show assoc" in done.stderr
        assert not Path("output").exists()
    study.write(text.format(setting="account: lab"))
    done = study("run", "--on", "slurm")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: study.done() == 2, 60)
    jobs = ("sacct", "-a", "-n", "-X", "-P", "-o", "Account")
    wait_until(lambda: set(study.cluster.ask(*jobs).split()) == {"lab"}, 30)  # it is told somewhat later
