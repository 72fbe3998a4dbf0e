"""What is there, as the JSON interface tells it; and what may be told of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

from stoker.emulator.storage.errors import wrong
from stoker.emulator.storage.objects import About, Bucket, Object

_OF_OBJECTS = (
    "cacheControl",
    "contentDisposition",
    "contentEncoding",
    "contentLanguage",
    "contentType",
    "customTime",
    "eventBasedHold",
    "metadata",
    "storageClass",
    "temporaryHold",
)
_OF_BUCKETS = (
    "autoclass",
    "billing",
    "cors",
    "customPlacementConfig",
    "defaultEventBasedHold",
    "encryption",
    "hierarchicalNamespace",
    "iamConfiguration",
    "labels",
    "lifecycle",
    "logging",
    "retentionPolicy",
    "rpo",
    "softDeletePolicy",
    "storageClass",
    "versioning",
    "website",
)
_UNIFORM = ("uniformBucketLevelAccess", "bucketPolicyOnly")  # two names of the same
_SEVERAL = {"US", "EU", "ASIA"}
_TWO = {"NAM4", "EUR4", "EUR5", "EUR7", "EUR8", "ASIA1"}


def object_resource(found: Object, url: str) -> dict[str, Any]:
    """An object; `url` is where the emulator answers."""
    place = f"b/{quote(found.bucket, safe='')}/o/{quote(found.name, safe='')}"
    sums = {"md5Hash": found.body.md5_hash} if found.body.md5 else {}
    parts = {"componentCount": found.components} if found.components else {}
    return {
        "kind": "storage#object",
        "id": f"{found.bucket}/{found.name}/{found.generation}",
        "selfLink": f"{url}/storage/v1/{place}",
        "mediaLink": f"{url}/download/storage/v1/{place}?generation={found.generation}&alt=media",
        "name": found.name,
        "bucket": found.bucket,
        "generation": str(found.generation),
        "metageneration": str(found.metageneration),
        "storageClass": "STANDARD",
        "size": str(found.body.size),
        **sums,
        "crc32c": found.body.crc32c_hash,
        "etag": found.etag,
        "timeCreated": moment(found.created),
        "updated": moment(found.updated),
        "timeStorageClassUpdated": moment(found.created),
        "timeFinalized": moment(found.created),
        **parts,
        **found.about,
    }


def bucket_resource(found: Bucket, url: str, number: str) -> dict[str, Any]:
    """A bucket; `number` is the project's."""
    return {
        "kind": "storage#bucket",
        "id": found.name,
        "selfLink": f"{url}/storage/v1/b/{quote(found.name)}",
        "projectNumber": number,
        "name": found.name,
        "generation": str(found.generation),
        "metageneration": str(found.metageneration),
        "timeCreated": moment(found.created),
        "updated": moment(found.updated),
        "etag": found.tags[0],
        **found.fields,
    }


def new_bucket_fields(given: Mapping[str, Any], moment_now: str) -> dict[str, Any]:
    """Of a bucket that is to be made."""
    location = str(given.get("location") or "US").upper()
    kind = "multi-region" if location in _SEVERAL else "dual-region" if location in _TWO else "region"
    fields = {
        "storageClass": "STANDARD",
        "iamConfiguration": {},
        "location": location,
        "locationType": kind,
        **allowed_bucket(given),
    }
    return with_access(fields, moment_now)


def with_access(fields: dict[str, Any], moment_now: str) -> dict[str, Any]:
    """With all that is told of uniform access."""
    given = fields.get("iamConfiguration") or {}
    uniform = dict(given.get("uniformBucketLevelAccess") or given.get("bucketPolicyOnly") or {})
    uniform["enabled"] = bool(uniform.get("enabled", False))
    if uniform["enabled"]:
        uniform.setdefault("lockedTime", moment_now)
    access = {
        "publicAccessPrevention": "inherited",
        **given,
        "uniformBucketLevelAccess": uniform,
        "bucketPolicyOnly": uniform,
    }
    return {**fields, "iamConfiguration": access}


def allowed_bucket(given: Mapping[str, Any]) -> dict[str, Any]:
    """What can be said of a bucket."""
    labels = given.get("labels")
    if labels is not None and not _is_text(labels):
        raise wrong("Invalid value for: labels must be text")
    if not isinstance(given.get("storageClass", ""), str):
        raise wrong("Invalid value for: storageClass must be text")
    access = given.get("iamConfiguration") or {}
    if not isinstance(access, dict) or not all(isinstance(access.get(key, {}), dict) for key in _UNIFORM):
        raise wrong("Invalid value for: iamConfiguration")
    return {key: given[key] for key in _OF_BUCKETS if key in given}


def allowed_about(given: Mapping[str, Any]) -> dict[str, Any]:
    """What can be said of an object."""
    if not isinstance(given, dict):
        raise wrong("Invalid value for: an object is expected")
    metadata = given.get("metadata")
    if metadata is not None and not _is_text(metadata):
        raise wrong("Invalid value for: metadata must be text")
    return {key: given[key] for key in _OF_OBJECTS if key in given}


def merged(old: About, change: Mapping[str, Any]) -> dict[str, Any]:
    """As PATCH has it: None removes, an object is merged with what is there."""
    new = dict(old)
    for key, value in change.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, dict):
            new[key] = merged(inner if isinstance(inner := new.get(key), dict) else {}, value)
        else:
            new[key] = value
    return {key: value for key, value in new.items() if value != {} or key not in ("metadata", "labels")}


def moment(microseconds: int) -> str:
    """As Google writes times."""
    found = datetime.fromtimestamp(microseconds / 1_000_000, timezone.utc)
    return found.strftime("%Y-%m-%dT%H:%M:%S.") + f"{found.microsecond // 1000:03}Z"


def _is_text(given: object) -> bool:
    """None is for what is to be removed."""
    return isinstance(given, dict) and all(
        value is None or isinstance(value, str) for value in given.values()
    )
