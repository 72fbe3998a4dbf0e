"""The JSON interface of buckets and their policies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from stoker.emulator.http import Reply, Request, json_reply
from stoker.emulator.service import Surroundings
from stoker.emulator.storage.conditions import of_query
from stoker.emulator.storage.errors import StorageError, wrong
from stoker.emulator.storage.gate import Gate, default_policy
from stoker.emulator.storage.listing import Query, count, page, start_of
from stoker.emulator.storage.objects import Bucket, Objects
from stoker.emulator.storage.resources import (
    allowed_bucket,
    bucket_resource,
    merged,
    moment,
    new_bucket_fields,
    with_access,
)


class BucketsApi:
    """`/storage/v1/b…`, where it ends before objects begin."""

    def __init__(self, around: Surroundings, objects: Objects, gate: Gate) -> None:
        self._around, self._objects, self._gate = around, objects, gate

    def calls(self) -> tuple[tuple[str, str, Callable[..., Reply]], ...]:
        """Method, shape of the path, and what answers."""
        return (
            ("GET", "b", self._list),
            ("POST", "b", self._insert),
            ("GET", "b/*", self._get),
            ("PATCH", "b/*", self._patch),
            ("PUT", "b/*", self._update),
            ("DELETE", "b/*", self._delete),
            ("GET", "b/*/iam", self._policy),
            ("PUT", "b/*/iam", self._set_policy),
            ("GET", "b/*/iam/testPermissions", self._test),
            ("GET", "b/*/storageLayout", self._layout),
            ("GET", "b/*/managedFolders", self._folders),
            ("GET", "projects/*/serviceAccount", self._account),
        )

    def _list(self, request: Request) -> Reply:
        self._gate.project(request, "storage.buckets.list")
        if not request.query.get("project"):
            raise StorageError(400, "required", "Required parameter: project")
        found = {one.name: one for one in self._objects.buckets()}
        start, most = start_of(request.query.get("pageToken", "")), count(request.query.get("maxResults", ""))
        query = Query(request.query.get("prefix", ""), start=start, most=most)
        chosen = page(list(found), query)
        told: dict[str, Any] = {"kind": "storage#buckets"}
        if chosen.names:
            told["items"] = [self._resource(found[name]) for name in chosen.names]
        if chosen.token:
            told["nextPageToken"] = chosen.token
        return json_reply(told)

    def _insert(self, request: Request) -> Reply:
        self._gate.project(request, "storage.buckets.create")
        given = request.json()
        if not request.query.get("project"):
            raise StorageError(400, "required", "Required parameter: project")
        fields = new_bucket_fields(given, _now())
        policy = default_policy(self._around.project)
        return self._told(self._objects.create_bucket(str(given.get("name") or ""), fields, policy))

    def _get(self, request: Request, bucket: str) -> Reply:
        self._gate.check(request, "storage.buckets.get", bucket)
        with self._objects.bucket(bucket) as found:
            of_query(request.query, request.headers).check_read(found)
            return self._told(found)

    def _patch(self, request: Request, bucket: str) -> Reply:
        with self._objects.bucket(bucket) as found:
            return self._changed(request, bucket, merged(found.fields, allowed_bucket(request.json())))

    def _update(self, request: Request, bucket: str) -> Reply:
        with self._objects.bucket(bucket) as found:
            fixed = {key: found.fields[key] for key in ("location", "locationType", "storageClass")}
            return self._changed(request, bucket, merged(fixed, allowed_bucket(request.json())))

    def _changed(self, request: Request, bucket: str, fields: dict[str, Any]) -> Reply:
        self._gate.check(request, "storage.buckets.update", bucket)
        conditions = of_query(request.query, request.headers)
        return self._told(self._objects.change_bucket(bucket, with_access(fields, _now()), conditions))

    def _delete(self, request: Request, bucket: str) -> Reply:
        self._gate.check(request, "storage.buckets.delete", bucket)
        self._objects.delete_bucket(bucket, of_query(request.query, request.headers))
        return Reply(204)

    def _policy(self, request: Request, bucket: str) -> Reply:
        self._gate.check(request, "storage.buckets.getIamPolicy", bucket)
        with self._objects.bucket(bucket) as found:
            return _told_policy(found)

    def _set_policy(self, request: Request, bucket: str) -> Reply:
        self._gate.check(request, "storage.buckets.setIamPolicy", bucket)
        given = request.json()
        bindings = given.get("bindings", [])
        if not isinstance(bindings, list) or not all(_is_binding(one) for one in bindings):
            raise wrong("Invalid policy: a binding has a role and members.")
        version = given.get("version")
        policy = {"version": version if isinstance(version, int) else 1, "bindings": bindings}
        return _told_policy(self._objects.change_policy(bucket, policy, str(given.get("etag") or "")))

    def _test(self, request: Request, bucket: str) -> Reply:
        asked = [value for name, value in request.pairs if name == "permissions"]
        found = self._gate.having(request, asked, bucket)
        told = {"permissions": found} if found else {}
        return json_reply({"kind": "storage#testIamPermissionsResponse", **told})

    def _layout(self, request: Request, bucket: str) -> Reply:
        self._gate.check(request, "storage.objects.list", bucket)
        with self._objects.bucket(bucket) as found:
            told = {key: found.fields[key] for key in ("location", "locationType")}
        whole = {"kind": "storage#storageLayout", "bucket": bucket, **told}
        return json_reply({**whole, "hierarchicalNamespace": {"enabled": False}})

    def _folders(self, request: Request, bucket: str) -> Reply:
        """There are none; `gcloud storage rm` asks for them."""
        self._gate.check(request, "storage.managedFolders.list", bucket)
        return json_reply({"kind": "storage#managedFolders"})

    def _account(self, request: Request, project: str) -> Reply:
        email = f"service-{self._around.identity.number}@gs-project-accounts.iam.gserviceaccount.com"
        return json_reply({"kind": "storage#serviceAccount", "email_address": email})

    def _resource(self, found: Bucket) -> dict[str, Any]:
        return bucket_resource(found, self._around.url(), self._around.identity.number)

    def _told(self, found: Bucket) -> Reply:
        return json_reply(self._resource(found), ETag=found.tags[0])


def _told_policy(found: Bucket) -> Reply:
    whole = {"kind": "storage#policy", "resourceId": f"projects/_/buckets/{found.name}", **found.policy}
    return json_reply({**whole, "etag": found.policy_tag})


def _is_binding(given: object) -> bool:
    return (
        isinstance(given, dict)
        and isinstance(given.get("role"), str)
        and isinstance(given.get("members", []), list)
    )


def _now() -> str:
    return moment(time.time_ns() // 1000)
