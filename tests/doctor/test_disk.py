"""What a disk is, and how much of it is left."""

from __future__ import annotations

import pytest

from stoker.checkup.disk import (
    Mount,
    Quota,
    find_mount,
    judge_inodes,
    judge_mount,
    judge_quota,
    judge_space,
    parse_quota,
)
from stoker.checkup.finding import Verdict

TABLE = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
41 27 0:40 / /home rw,nosuid shared:12 - nfs4 files.lab:/export/home rw,vers=4.2,acdirmax=5,lookupcache=pos
42 27 0:41 / /home/my\\040data rw - lustre 10.0.0.1@o2ib:/scratch rw,flock,lazystatfs
43 27 0:42 / /mnt ro - nfs4 old:/x rw,nocto
44 27 0:43 / /mnt rw master:3 - beegfs beegfs_nodev rw,cfgFile=/etc/beegfs.conf
broken line
"""


@pytest.mark.parametrize(
    ("place", "kind", "point"),
    [
        ("/", "ext4", "/"),
        ("/var/lib", "ext4", "/"),
        ("/homeless", "ext4", "/"),
        ("/home", "nfs4", "/home"),
        ("/home/me/study", "nfs4", "/home"),
        ("/home/my data/study", "lustre", "/home/my data"),
        ("/mnt/x", "beegfs", "/mnt"),
    ],
)
def test_the_mount_of_a_place(place: str, kind: str, point: str) -> None:
    found = find_mount(place, TABLE)
    assert found is not None
    assert (found.kind, found.point) == (kind, point)


def test_a_place_on_no_mount() -> None:
    assert find_mount("/", "") is None
    assert judge_mount(None, False).verdict is Verdict.OK


def test_what_is_told_of_a_mount() -> None:
    local, home, lustre = (find_mount(place, TABLE) for place in ("/", "/home", "/home/my data"))
    assert judge_mount(local, False).found == "ext4 at /, this machine's own"
    told = "nfs4 at /home from files.lab:/export/home, shared (vers=4.2, acdirmax=5, lookupcache=pos)"
    assert (judge_mount(home, True).found, judge_mount(home, True).verdict) == (told, Verdict.OK)
    told = "lustre at /home/my data from 10.0.0.1@o2ib:/scratch, shared (flock)"
    assert judge_mount(lustre, True).found == told


@pytest.mark.parametrize(
    ("option", "verdict"),
    [
        ("nocto", Verdict.WARNING),
        ("actimeo=600", Verdict.WARNING),
        ("acdirmin=3600", Verdict.WARNING),
        ("acdirmax=60", Verdict.OK),
        ("acregmax=600", Verdict.OK),
        ("noac", Verdict.OK),
    ],
)
def test_options_that_make_news_late(option: str, verdict: Verdict) -> None:
    check = judge_mount(Mount("/home", "nfs4", "server:/", ("rw", option)), True)
    assert check.verdict is verdict
    assert option in check.found
    assert bool(check.remedy) == (verdict is Verdict.WARNING)


GB = 10**9


@pytest.mark.parametrize(
    ("free", "total", "verdict"),
    [
        (0, 100 * GB, Verdict.BAD),
        (0, 0, Verdict.BAD),
        (1, 100 * GB, Verdict.WARNING),
        (GB - 1, 2 * GB, Verdict.WARNING),
        (4 * GB, 100 * GB, Verdict.WARNING),
        (5 * GB, 100 * GB, Verdict.OK),
        (GB, 2 * GB, Verdict.OK),
    ],
)
def test_space(free: int, total: int, verdict: Verdict) -> None:
    assert judge_space(free, total).verdict is verdict


@pytest.mark.parametrize(
    ("free", "total", "verdict"),
    [(0, 0, Verdict.OK), (0, 10, Verdict.BAD), (4, 100, Verdict.WARNING), (5, 100, Verdict.OK)],
)
def test_inodes(free: int, total: int, verdict: Verdict) -> None:
    assert judge_inodes(free, total).verdict is verdict


QUOTA = """\
Disk quotas for user me (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
/dev/mapper/vg-home 9800000* 9000000 10000000 1770000000 12000       0       0       0
files.lab:/export/home   20000  500000  600000       0    1200   10000   12000       0
"""
LUSTRE = """\
Disk quotas for usr me (uid 1000):
      Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
/a/very/long/name/of/a/scratch
                 1048576       0 1073741824       -  999500* 900000 1000000 6d23h59m
uid 1000 is using default block quota setting
"""


def test_quotas() -> None:
    assert parse_quota(QUOTA, ("/home", "/dev/mapper/vg-home")) == Quota(
        9800000 * 1024, 9000000 * 1024, 12000, 0
    )
    assert parse_quota(QUOTA, ("/home", "files.lab:/export/home")) == Quota(
        20000 * 1024, 500000 * 1024, 1200, 10000
    )
    long = "/a/very/long/name/of/a/scratch"
    assert parse_quota(LUSTRE, (long, "10.0.0.1@o2ib:/scratch")) == Quota(2**30, 2**40, 999500, 900000)


@pytest.mark.parametrize(
    "text", ["", "Disk quotas for user me (uid 1000): none\n", "/home: Permission denied\n", "/home 1 2\n"]
)
def test_no_quota(text: str) -> None:
    assert parse_quota(text, ("/home", "/dev/vda")) is None


@pytest.mark.parametrize(
    ("quota", "verdict", "found"),
    [
        (Quota(5, 0, 7, 0), Verdict.OK, "no limit"),
        (Quota(50 * GB, 100 * GB, 7, 0), Verdict.OK, "50 GB of 100 GB"),
        (Quota(96 * GB, 100 * GB, 7, 0), Verdict.WARNING, "96 GB of 100 GB"),
        (Quota(1, 0, 960, 1000), Verdict.WARNING, "960 of 1,000 files"),
        (Quota(1, 0, 1000, 1000), Verdict.BAD, "1,000 of 1,000 files"),
    ],
)
def test_what_a_quota_leaves(quota: Quota, verdict: Verdict, found: str) -> None:
    check = judge_quota(quota)
    assert (check.verdict, check.found) == (verdict, found)
