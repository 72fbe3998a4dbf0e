"""Cloud Storage, as one service of the cloud: finds out which interface a request is for."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from stoker.emulator.errors import ApiError
from stoker.emulator.http import Reply, Request
from stoker.emulator.service import Kept, Surroundings
from stoker.emulator.storage import batch
from stoker.emulator.storage.bodies import Bodies
from stoker.emulator.storage.errors import json_error, xml_error
from stoker.emulator.storage.gate import Gate
from stoker.emulator.storage.inserts import Inserts
from stoker.emulator.storage.json_api import JsonApi
from stoker.emulator.storage.objects import Objects
from stoker.emulator.storage.rate import WriteRate
from stoker.emulator.storage.uploads import Uploads
from stoker.emulator.storage.xml_api import XmlApi

_JSON = re.compile(r"/(?:(download|upload|resumable/upload)/)?storage/v1/(.*)")
_BATCH = re.compile(r"/batch(?:/storage/v1)?/?")


class Storage:
    """See Service. `rate` may be changed while it runs: `storage.rate.each_second = 0` for no limit."""

    def __init__(self, around: Surroundings, kept: Kept, lasts: bool = False) -> None:
        """`lasts`: what is dumped is saved, and `saved` is called after that."""
        self._bodies = bodies = Bodies(around.directory / "storage", lasts)
        self._around, self.rate = around, WriteRate(around.now)
        self._objects = Objects(bodies, self.rate, kept.get("objects", {}))
        self._uploads = Uploads(bodies, kept.get("uploads", {}))
        bodies.sweep(self._objects.files() | self._uploads.files())
        gate = Gate(around.identity, self._objects)
        self._json = JsonApi(around, self._objects, gate)
        self._xml = XmlApi(self._objects, self._uploads, gate)
        self._inserts = Inserts(self._objects, self._uploads, gate, around.url)

    def handle(self, request: Request) -> Reply:
        """See Service."""
        is_json = _JSON.fullmatch(request.path) or _BATCH.fullmatch(request.path)
        try:
            reply = self._answer(request)
        except ApiError as error:
            if error.code == 304:
                return Reply(304)
            return json_error(error) if is_json else xml_error(error)
        if request.method not in ("GET", "HEAD"):
            self._around.changed()
        return reply

    def _answer(self, request: Request) -> Reply:
        if _BATCH.fullmatch(request.path):
            return batch.answer(request, self.handle)
        found = _JSON.fullmatch(request.path)
        if found is None:
            return self._xml.handle(request)
        parts = [unquote(part) for part in found[2].split("/")]
        if found[1] in ("upload", "resumable/upload"):
            if len(parts) != 3:
                raise ApiError(404, "notFound", "Not Found")
            return self._inserts.handle(request, parts[1])
        return self._json.handle(request, parts)

    def dump(self) -> dict[str, Any]:
        """See Service."""
        self._bodies.begin_save()
        uploads = self._uploads.dump()  # first: one that ends meanwhile is better there twice than never
        return {"objects": self._objects.dump(), "uploads": uploads}

    def saved(self) -> None:
        """What was dumped last is on the disk."""
        self._bodies.end_save()

    def close(self) -> None:
        """See Service. Nothing runs here."""
