"""What no real cloud offers, at `/emulator`: faults, preemptions, the meter, and what runs.

GET    /emulator           what this is, and how much is in it
GET    /emulator/faults    what goes wrong, and how often it did
POST   /emulator/faults    a fault, or a list of them, from now on
DELETE /emulator/faults    none any more; with /ID, one of them less
POST   /emulator/preempt   {"name": …}, {"zone": …} (all of its spot VMs), {"count": n}, {} (one)
GET    /emulator/meter     every use of every VM
GET    /emulator/policy    the project's roles; POST puts others in their place
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, Protocol

from stoker.emulator.errors import ApiError, invalid
from stoker.emulator.faults import fault_of
from stoker.emulator.http import Reply, Request, json_reply
from stoker.emulator.machines.interface import Mode
from stoker.emulator.policies import replaced, told
from stoker.emulator.service import Surroundings


class Uses(Protocol):
    """What the meter counted."""

    def dump(self) -> list[dict[str, Any]]:
        """Each with `start` and `stop`, in seconds since 1970; without a stop, it goes on."""


class Fleet(Protocol):
    """What this has to know of the VMs."""

    @property
    def mode(self) -> Mode:
        """What they are."""

    @property
    def meter(self) -> Uses:
        """How long they ran."""

    def instances(self) -> list[dict[str, Any]]:
        """All of them."""

    def running(self) -> dict[str, str]:
        """Spot VMs that run: name → zone."""

    def ssh_port(self, name: str) -> int | None:
        """Where its sshd answers; None if it has none."""

    def preempt(self, name: str) -> bool:
        """Take one away; False if it does not run, or is no spot VM."""


class Control:
    """Answers for `/emulator`."""

    def __init__(self, around: Surroundings, compute: Fleet) -> None:
        self._around, self._compute = around, compute
        self._calls: Mapping[tuple[str, str], _Call] = {
            ("GET", ""): self._look,
            ("GET", "faults"): self._faults,
            ("POST", "faults"): self._add,
            ("DELETE", "faults"): self._remove,
            ("POST", "preempt"): self._preempt,
            ("GET", "meter"): self._meter,
            ("GET", "policy"): self._policy,
            ("POST", "policy"): self._set_policy,
        }

    def handle(self, request: Request) -> Reply:
        """Answer one request. May raise ApiError."""
        _, what, *rest = [*request.parts, ""][:4]
        call = self._calls.get((request.method, what))
        if call is None or (any(rest) and (request.method, what) != ("DELETE", "faults")):
            raise ApiError(404, "notFound", f"{request.method} {request.path}: nothing of the emulator")
        return json_reply(call(request))

    def _look(self, request: Request) -> dict[str, Any]:
        return {
            "version": version("stoker"),
            "project": self._around.project,
            "mode": self._compute.mode.value,
            "vms": [self._vm(one) for one in self._compute.instances()],
            "uses": len(self._compute.meter.dump()),
            "faults": len(self._around.faults.all()),
        }

    def _vm(self, instance: Mapping[str, Any]) -> dict[str, Any]:
        """What people want to know of one; `ssh` is the port of loopback behind which its sshd answers."""
        name, zone = str(instance["name"]), str(instance["zone"]).rpartition("/")[2]
        return {"name": name, "zone": zone, "status": instance["status"], "ssh": self._compute.ssh_port(name)}

    # Faults

    def _faults(self, request: Request) -> dict[str, Any]:
        counts = self._around.faults.counts()
        found = [{**asdict(fault), "done": counts.get(fault.id, 0)} for fault in self._around.faults.all()]
        return {"faults": found}

    def _add(self, request: Request) -> dict[str, Any]:
        given = _json(request)
        made = [fault_of(one) for one in (given if isinstance(given, list) else [given])]
        now = self._around.now()
        return {"faults": [asdict(self._around.faults.add(fault, now)) for fault in made]}

    def _remove(self, request: Request) -> dict[str, Any]:
        id_ = "/".join(request.parts[2:])
        if not self._around.faults.remove(id_) and id_:
            raise ApiError(404, "notFound", f"there is no fault '{id_}'")
        return {}

    # VMs

    def _preempt(self, request: Request) -> dict[str, Any]:
        body, running = request.json(), self._compute.running()
        for key in body:
            if key not in ("name", "zone", "count"):
                raise invalid(f"preempt: unknown key '{key}'; known are name, zone, count")
        if "name" in body:
            names = [str(body["name"])]
        else:
            zone, count = str(body.get("zone", "")), body.get("count", None if "zone" in body else 1)
            names = _chosen([name for name, where in running.items() if zone in ("", where)], count)
        taken = [name for name in names if self._compute.preempt(name)]
        if "name" in body and not taken:
            raise ApiError(404, "notFound", f"'{body['name']}' is no spot VM that runs")
        return {"preempted": taken}

    def _meter(self, request: Request) -> dict[str, Any]:
        now = time.time()
        uses = [
            {**use, "seconds": (now if use["stop"] is None else use["stop"]) - use["start"]}
            for use in self._compute.meter.dump()
        ]
        return {"uses": uses, "seconds": sum(use["seconds"] for use in uses)}

    # Roles

    def _policy(self, request: Request) -> dict[str, Any]:
        return told(self._around.identity.policy)

    def _set_policy(self, request: Request) -> dict[str, Any]:
        identity = self._around.identity
        identity.policy = replaced(identity.policy, {"policy": request.json()})
        self._around.changed()
        return told(identity.policy)


_Call = Callable[[Request], dict[str, Any]]


def _json(request: Request) -> object:
    try:
        return json.loads(request.small)
    except (ValueError, RecursionError):
        raise invalid("expected JSON") from None


def _chosen(names: list[str], count: object) -> list[str]:
    """So many of them, by chance; all, if no number is given."""
    if count is None:
        return names
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise invalid("preempt: count is a whole number")
    return random.sample(names, min(count, len(names)))
