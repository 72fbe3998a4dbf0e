"""What an API answers when it cannot do what it was asked for."""

from __future__ import annotations

BUG = "emulatorBug"
"""The reason of what is our own fault: no API of Google has it, so that tests can tell."""


class ApiError(Exception):
    """Becomes a reply with a status and a reason: `raise ApiError(404, "notFound", "no such thing")`.

    `reason` is Google's short word for it; `status` its gRPC name, for the APIs that have one.
    """

    def __init__(self, code: int, reason: str, message: str, domain: str = "global") -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.domain = code, reason, message, domain

    @property
    def status(self) -> str:
        """Its name among the codes of gRPC."""
        return _OF_REASON.get(self.reason) or _STATUS.get(self.code, "UNKNOWN")

    def body(self) -> dict[str, object]:
        """As the JSON APIs tell it."""
        each = {"message": self.message, "domain": self.domain, "reason": self.reason}
        error = {"code": self.code, "message": self.message, "errors": [each], "status": self.status}
        return {"error": error}

    def new_body(self) -> dict[str, object]:
        """As the newer ones tell it, such as Secret Manager."""
        return {"error": {"code": self.code, "message": self.message, "status": self.status}}


_OF_REASON = {"failedPrecondition": "FAILED_PRECONDITION", "aborted": "ABORTED"}
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    412: "FAILED_PRECONDITION",
    416: "OUT_OF_RANGE",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def not_found(what: str) -> ApiError:
    """Compute Engine's words for what is absent."""
    return ApiError(404, "notFound", f"The resource '{what}' was not found")


def exists_already(what: str) -> ApiError:
    """Compute Engine's words for what is there already."""
    return ApiError(409, "alreadyExists", f"The resource '{what}' already exists")


def invalid(message: str) -> ApiError:
    """What is wrong with a request."""
    return ApiError(400, "invalid", message)


def bug(error: Exception) -> ApiError:
    """What nobody thought of went wrong here, not where the request comes from."""
    trace, where = error.__traceback__, ""
    while trace is not None:
        where = f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}"
        trace = trace.tb_next
    return ApiError(500, BUG, f"a bug of the emulator: {type(error).__name__}: {error} ({where})")
