"""Where records and files of a study live: a directory, or a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.core.errors import UsageError

if TYPE_CHECKING:
    from stoker.store.interface import Store

REMOTE = ("gs", "s3", "az")
"""Schemes of the buckets that RemoteStore knows."""


def open_store(url_or_path: str) -> Store:
    """The store at a path, a file:// URL, or the URL of a bucket and maybe a place in it.

    Raises UsageError for what cannot be a store; whether there is one, only its use tells. Opening
    `store.url` gives the same store again, from any working directory.
    """
    scheme, mark, rest = url_or_path.partition("://")
    if not mark:
        return _directory(url_or_path)
    if scheme == "file":
        return _directory(_path_of(rest))
    if scheme in REMOTE:
        from stoker.store.remote import RemoteStore

        return RemoteStore(url_or_path)
    known = ", ".join(f"{scheme}://BUCKET" for scheme in REMOTE)
    raise UsageError(f"'{url_or_path}' is no store: use a directory, file:///PATH, {known}")


def _directory(path: str) -> Store:
    from pathlib import Path

    from stoker.store.directory import DirectoryStore

    if not path:
        raise UsageError("the name of the store is empty; use a directory, or the URL of a bucket")
    if Path(path).is_file():
        raise UsageError(f"{path} is a file; a store is a directory")
    return DirectoryStore(Path(path))


def _path_of(rest: str) -> str:
    from urllib.parse import unquote

    host, _, path = rest.partition("/")
    if host not in ("", "localhost"):
        raise UsageError(f"file://{rest} names another machine; write file:///PATH, or the path alone")
    return "/" + unquote(path)
