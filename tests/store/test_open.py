from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stoker.core.errors import UsageError
from stoker.store import open_store
from stoker.store.directory import DirectoryStore
from tests.store.needs import need


def test_a_path_is_a_directory(workplace: Path) -> None:
    for name in ("here", "./here", str(workplace / "here"), "s3", "a:b"):
        store = open_store(name)
        assert isinstance(store, DirectoryStore)
        assert store.url == str((workplace / name).absolute())
        assert open_store(store.url).url == store.url
    assert list(workplace.iterdir()) == []


def test_a_file_url_is_a_directory() -> None:
    assert open_store("file:///some/it%27s%20here").url == "/some/it's here"
    assert open_store("file://localhost/some").url == "/some"
    with pytest.raises(UsageError, match="names another machine"):
        open_store("file://server/some")


def test_what_is_no_store(workplace: Path) -> None:
    Path("file").touch()
    with pytest.raises(UsageError, match="file is a file; a store is a directory"):
        open_store("file")
    with pytest.raises(UsageError, match="empty"):
        open_store("")
    with pytest.raises(UsageError, match=r"'ftp://x/y' is no store: use a directory, .* gs://BUCKET"):
        open_store("ftp://x/y")


@pytest.mark.parametrize("url", ["s3://", "gs://", "s3://b//c", "az://container/x"])
def test_what_is_no_bucket(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need("obstore")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(UsageError) as told:
        open_store(url)
    assert str(told.value).startswith(f"cannot open the store {url.rstrip('/')}")
    assert "\n" not in str(told.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UsageError, match=r"pip install 'stoker\[remote\]'"):
        open_store("gs://bucket/place")


def test_imports_are_lazy() -> None:
    code = (
        "import sys, stoker.store; stoker.store.open_store('/tmp'); import stoker.store.remote;"
        "sys.exit(any(name.split('.')[0] in ('obstore', 'shutil') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
