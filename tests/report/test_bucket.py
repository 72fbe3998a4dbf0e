"""Failures, curves and the report of a study in a bucket, where everything has to be fetched."""

from __future__ import annotations

from pathlib import Path

from tests.store.needs import need
from tests.store.server import BUCKET, s3_server
from tests.stories.command import stoker

TEXT = """\
template: 'for i in 1 2 3; do echo acc=0.$i{n}; done; [ {n} != 2 ]'
metrics: {acc: 'acc=(\\S+)'}
objective: {metric: acc, goal: max}
resource: [0, 1]
---
n: [1, 2, 3]
"""


def test_a_study_in_a_bucket_has_its_report(workplace: Path) -> None:
    need("obstore", "moto", "flask", "flask_cors")
    Path("params.yaml").write_text(TEXT, encoding="utf-8")
    url = f"s3://{BUCKET}/report"
    with s3_server() as address:
        known = {
            "AWS_ACCESS_KEY_ID": "me",
            "AWS_SECRET_ACCESS_KEY": "hush",
            "AWS_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
            "AWS_ENDPOINT_URL": address,
            "STOKER_SCRATCH": str(workplace / "scratch"),
        }
        done = stoker("run", "-o", url, **known)
        assert done.returncode == 1, done.stderr
        assert "  │ acc=0.32\n" in stoker("errors", url, **known).stdout
        assert stoker("report", url, **known).returncode == 0
        words = ("--columns", "n,acc.min,acc.max", "--where", "acc.min>0.11", "--format", "csv")
        assert stoker("table", url, *words, **known).stdout == "n,acc.min,acc.max\n3,0.13,0.33\n2,0.12,0.32\n"
    body = Path("report.html").read_text(encoding="utf-8")
    assert "sweep 1 · 3 trials" in body
    assert "best acc, trial 3" in body
