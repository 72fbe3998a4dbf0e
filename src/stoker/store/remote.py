"""Stores in buckets: Google Cloud Storage, S3 and what speaks its language, Azure.

All of them through obstore, which nothing else imports.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stoker.core.errors import UsageError
from stoker.store.directory import check_prefix, is_word, whole_file
from stoker.store.interface import Entry, StoreError, check_key

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import BackoffConfig, ClientConfig, ObjectStore, RetryConfig

_MB = 1024 * 1024
_LARGE = _MB
_PART = 16 * _MB
_MOST_PARTS = 9000  # S3 takes 10 000
_PAGE = 1000

_BACKOFF: BackoffConfig = {
    "init_backoff": timedelta(seconds=0.1),
    "max_backoff": timedelta(seconds=2),
    "base": 2,
}
_ENDPOINTS = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT",
    "AZURE_ENDPOINT",
)
_METADATA = re.compile(r"169\.254\.169\.254|metadata\.google\.internal")
_MESSAGE = re.compile(r"<Message>(.*?)</Message>|\"message\": *\"(.*?)\"", re.DOTALL)


class RemoteStore:
    """Objects below a URL such as gs://bucket/some/place.

    Credentials and settings come from the environment, as the clouds' own tools have them: application
    default credentials; AWS_ACCESS_KEY_ID and the like, AWS_REGION, AWS_ENDPOINT_URL for what is not
    Amazon's; AZURE_STORAGE_ACCOUNT_NAME and the like; STORAGE_EMULATOR_HOST for an emulator of Google's.

    A call for a record waits `wait` seconds for an answer, tries again in that time, and so gives up after
    twice as long; no signal interrupts it. Not to be used in a process forked from one that has used it.
    """

    def __init__(self, url: str, *, wait: float = 10) -> None:
        self.url = url.rstrip("/")
        self._obstore = _import_obstore()
        self._records = _open(self.url, wait=wait, retry_for=wait)

    def create(self, key: str, data: bytes) -> bool:
        """See Store."""
        check_key(key)
        with self._telling("create", key):
            try:
                self._obstore.put(self._client(len(data)), key, data, mode="create")
            except self._obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def read(self, key: str) -> bytes | None:
        """See Store."""
        check_key(key)
        with self._telling("read", key):
            try:
                return bytes(self._obstore.get(self._records, key).bytes())
            except FileNotFoundError:
                return None

    def write(self, key: str, data: bytes) -> None:
        """See Store."""
        check_key(key)
        with self._telling("write", key):
            self._obstore.put(self._client(len(data)), key, data)

    def list(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """See Store. Asks for a thousand at a time, and for none that come before `after` (on Azure, the
        client drops those). Objects whose names are no keys are passed over."""
        check_prefix(prefix)
        return self._entries(prefix, after)

    def delete(self, key: str) -> None:
        """See Store."""
        check_key(key)
        with self._telling("delete", key), suppress(FileNotFoundError):
            self._obstore.delete(self._records, key)

    def upload(self, key: str, path: Path) -> None:
        """See Store. A file that cannot be opened raises its OSError: that is not the store's failure."""
        check_key(key)
        with path.open("rb") as file, self._telling("write", key):
            part = max(_PART, os.fstat(file.fileno()).st_size // _MOST_PARTS)
            self._obstore.put(self._files, key, file, chunk_size=part, max_concurrency=4)

    def download(self, key: str, path: Path) -> bool:
        """See Store."""
        check_key(key)
        with self._telling("read", key):
            try:
                found = self._obstore.get(self._files, key)
            except FileNotFoundError:
                return False
            with whole_file(path) as temp, Path(temp).open("xb") as file:
                for part in found.stream(min_chunk_size=_MB):
                    file.write(part)
        return True

    @cached_property
    def _files(self) -> ObjectStore:
        """For what takes long: as much time for a part of a file as a slow line needs."""
        return _open(self.url, wait=120, retry_for=3600)

    def _client(self, size: int) -> ObjectStore:
        return self._records if size < _LARGE else self._files

    def _entries(self, prefix: str, after: str) -> Iterator[Entry]:
        with self._telling("list", prefix):
            pages = self._obstore.list(
                self._records, prefix[:-1] or None, offset=_offset(after), chunk_size=_PAGE
            )
            for page in pages:
                for found in page:
                    if found["path"] > after and all(map(is_word, found["path"].split("/"))):
                        yield Entry(found["path"], _version(found))

    @contextmanager
    def _telling(self, doing: str, key: str) -> Iterator[None]:
        """Turns an error of obstore, or of a file of ours, into the StoreError that tells it."""
        try:
            yield
        except (self._obstore.exceptions.BaseError, OSError) as error:
            raise StoreError(f"cannot {doing} {self.url}/{key}: {_reason(error)}") from error


def _import_obstore() -> Any:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError:
        raise UsageError("a store in a bucket needs one more package: pip install 'stoker[remote]'") from None
    return obstore


def _open(url: str, wait: float, retry_for: float) -> ObjectStore:
    """A client that waits so many seconds for each answer, or for the next part of one."""
    obstore = _import_obstore()
    emulator = _emulator() if url.startswith("gs:") else ""
    endpoints = [emulator, *(os.environ.get(name, "") for name in _ENDPOINTS)]
    options: ClientConfig = {
        "allow_http": any(endpoint.startswith("http:") for endpoint in endpoints),
        "connect_timeout": timedelta(seconds=5),
        "read_timeout": timedelta(seconds=wait),
        "timeout": timedelta(hours=1),
    }
    retry: RetryConfig = {
        "max_retries": 3,
        "retry_timeout": timedelta(seconds=retry_for),
        "backoff": _BACKOFF,
    }
    config = {"service_account_key": _account(emulator)} if emulator else {}
    try:
        store = obstore.store.from_url(url, config=config, client_options=options, retry_config=retry)
    except (obstore.exceptions.BaseError, ValueError) as error:
        raise UsageError(f"cannot open the store {url}: {_reason(error)}") from error
    return cast("ObjectStore", store)


def _emulator() -> str:
    """The address of an emulator of Google Cloud Storage, if the environment names one."""
    host = os.environ.get("STORAGE_EMULATOR_HOST", "").rstrip("/")
    return f"http://{host}" if host and "://" not in host else host


def _account(address: str) -> str:
    """The key of a service account that asks for no tokens, which is how obstore speaks to an emulator."""
    nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    return json.dumps({"gcs_base_url": address, "disable_oauth": True, **nobody})


def _offset(after: str) -> str | None:
    """The longest key that `after` begins with; what comes behind `after` comes behind that as well."""
    return "/".join(takewhile(is_word, after.split("/"))) or None


def _version(found: ObjectMeta) -> str:
    """The tag alone may be a digest of the contents, which the same contents leave as it is."""
    return f"{found['e_tag'] or found['version']}@{found['last_modified'].timestamp()}"


def _reason(error: Exception) -> str:
    """The end of obstore's long story, without addresses, which may hold secrets."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    story = str(error).partition("\n\nDebug source")[0]
    if _METADATA.search(story):
        return "found no credentials in the environment, and this machine has none of its own"
    line = story.partition("\n")[0].partition("<")[0].rpartition(" - ")[2]
    for opening in ("Server returned non-2xx status code: ", "HTTP error: "):
        line = line.removeprefix(opening)
    detail = _MESSAGE.search(story)
    return ": ".join(filter(None, [line.strip(": ")[:200], detail and (detail[1] or detail[2])]))
