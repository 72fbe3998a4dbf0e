"""The words for what went wrong: a reason for the JSON interface, a code for the XML interface."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape

from stoker.emulator.errors import ApiError
from stoker.emulator.http import Reply, json_reply

_XML = {
    400: "InvalidArgument",
    401: "AuthenticationRequired",
    403: "AccessDenied",
    404: "NoSuchKey",
    405: "MethodNotAllowed",
    409: "Conflict",
    412: "PreconditionFailed",
    413: "EntityTooLarge",
    416: "InvalidRange",
    429: "SlowDown",
    501: "NotImplemented",
    503: "ServiceUnavailable",
}


class StorageError(ApiError):
    """An ApiError that has a name in the XML interface, too."""

    def __init__(self, code: int, reason: str, message: str, xml: str = "", domain: str = "global") -> None:
        super().__init__(code, reason, message, domain)
        self.xml = xml or xml_code(code)
        self.headers: Mapping[str, str] = {}


def xml_code(code: int) -> str:
    """What the XML interface calls it, if there is nothing more exact."""
    return _XML.get(code, "InternalError" if code >= 500 else "InvalidArgument")


def xml_error(error: ApiError) -> Reply:
    """As the XML interface tells it."""
    name = error.xml if isinstance(error, StorageError) else xml_code(error.code)
    body = (
        f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{name}</Code>"
        f"<Message>{escape(error.message)}</Message></Error>"
    )
    told = {"Content-Type": "application/xml; charset=UTF-8", **_headers(error)}
    return Reply(error.code, body.encode(), told)


def json_error(error: ApiError) -> Reply:
    """As the JSON interface tells it."""
    return json_reply(error.body(), error.code, **_headers(error))


def _headers(error: ApiError) -> Mapping[str, str]:
    return error.headers if isinstance(error, StorageError) else {}


def no_bucket() -> StorageError:
    """A bucket that is absent."""
    return StorageError(404, "notFound", "The specified bucket does not exist.", "NoSuchBucket")


def no_object(bucket: str, name: str) -> StorageError:
    """An object that is absent."""
    return StorageError(404, "notFound", f"No such object: {bucket}/{name}", "NoSuchKey")


def no_upload() -> StorageError:
    """An upload that is absent."""
    return StorageError(404, "notFound", "The requested upload was not found.", "NoSuchUpload")


def not_met() -> StorageError:
    """A precondition that does not hold."""
    message = "At least one of the pre-conditions you specified did not hold."
    return StorageError(412, "conditionNotMet", message)


def not_modified() -> StorageError:
    """A precondition of a reader, who has seen this already."""
    return StorageError(304, "notModified", "Not Modified")


def not_there(size: int) -> StorageError:
    """A range behind the end."""
    message = "The requested range cannot be satisfied."
    error = StorageError(416, "requestedRangeNotSatisfiable", message)
    error.headers = {"Content-Range": f"bytes */{size}"}
    return error


def too_often(bucket: str, name: str) -> StorageError:
    """A name that is written too often."""
    message = (
        f"The object {bucket}/{name} exceeded the rate limit for object mutation operations "
        "(create, update, and delete). Please reduce your request rate. See https://cloud.google.com/storage/docs/gcs429."
    )
    return StorageError(429, "rateLimitExceeded", message, domain="usageLimits")


def wrong(message: str, xml: str = "InvalidArgument") -> StorageError:
    """What is wrong with a request."""
    return StorageError(400, "invalid", message, xml)


def conflict(message: str, xml: str) -> StorageError:
    """What is there stands in the way."""
    return StorageError(409, "conflict", message, xml)
