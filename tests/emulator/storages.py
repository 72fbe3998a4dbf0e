"""Cloud Storage alone, answering on loopback, and the clients that speak to it."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from stoker.emulator.errors import ApiError
from stoker.emulator.faults import Faults
from stoker.emulator.http import Reply, Request, Server, json_reply, listen_on_loopback
from stoker.emulator.identity import Caller, Identity
from stoker.emulator.pace import FAST
from stoker.emulator.service import Surroundings
from stoker.emulator.storage.service import Storage

PROJECT = "home-project"
Observer = Callable[[Request, Reply], None]


class Home:
    """A running Cloud Storage."""

    def __init__(self, directory: Path, kept: dict[str, Any], observe: Observer) -> None:
        self._server, self._listening, self._observe = Server(), listen_on_loopback(), observe
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.identity, self.now = Identity(PROJECT), 0.0
        around = Surroundings(
            PROJECT,
            directory,
            self.identity,
            Faults(random.Random(1)),
            FAST,
            self._server,
            lambda: None,
            lambda: self.now or time.monotonic(),
            self.answer,
            lambda: self.url,
        )
        self.storage = Storage(around, kept)
        self._server.listen(self._listening, self.answer)

    def answer(self, request: Request) -> Reply:
        try:
            caller = self.identity.caller(request.headers)
            reply = self.storage.handle(replace(request, extra={"caller": caller}))
        except ApiError as error:
            reply = json_reply(error.body(), error.code)
        self._observe(request, reply)
        return reply

    def close(self) -> None:
        self.storage.close()
        self._server.close()

    def token(self, account: str, scope: str) -> str:
        caller = Caller(account, (f"https://www.googleapis.com/auth/{scope}",))
        return str(self.identity.token(caller)["access_token"])

    def client(self, token: str = "") -> Any:
        """Google's own."""
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage
        from google.oauth2.credentials import Credentials

        who = Credentials(token) if token else AnonymousCredentials()  # type: ignore[no-untyped-call]
        return storage.Client(project=PROJECT, credentials=who, client_options={"api_endpoint": self.url})

    def obstore(self, bucket: str) -> Any:
        """A client of the XML interface."""
        from obstore.store import GCSStore

        nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        key = json.dumps({"gcs_base_url": self.url, "disable_oauth": True, **nobody})
        retry: Any = {"max_retries": 0}
        return GCSStore(
            bucket, service_account_key=key, client_options={"allow_http": True}, retry_config=retry
        )


def wrong_replies(problems: list[str]) -> list[str]:
    """What is wrong with what we said; what Google's client says is Google's business."""
    return [one for one in problems if not one.partition(": ")[2].startswith(("request.", "query."))]


@contextmanager
def home(directory: Path, observe: Observer, kept: dict[str, Any] | None = None) -> Iterator[Home]:
    """Runs while it is used. What it kept, another can go on with: `storage.dump()`."""
    found = Home(directory, json.loads(json.dumps(kept or {})), observe)
    try:
        yield found
    finally:
        found.close()
