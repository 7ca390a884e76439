"""What a client gets to read when a request cannot be answered: OpenAI's shape of an error.

Knows: statuses, and how a sentence of the library's form names its field. Refuses to know: what is wrong.
"""

from __future__ import annotations

import re

from starlette.responses import JSONResponse

# The library's form: "<argument>: expected <condition>, got <fact>".
FIELD = re.compile(r"(\w+): expected ")
# What a client that is sent away should wait, in seconds: many steps, little of a user's patience.
RETRY_AFTER = "1"


class ApiError(Exception):
    """A request that ends with an error; `field` is the one that is wrong, where it is one."""

    def __init__(self, status: int, message: str, *, code: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.field = field

    @classmethod
    def of(cls, error: Exception, status: int) -> ApiError:
        """Pass on what the library, or a check in its form, says of an argument."""
        named = FIELD.match(str(error))
        code = "out_of_range" if isinstance(error, IndexError) else "invalid_value"
        return cls(status, str(error), code=code, field=named[1] if named else None)

    def response(self) -> JSONResponse:
        """Say it to the client."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        body = {"error": {"message": self.message, "type": kind, "param": self.field, "code": self.code}}
        return JSONResponse(body, self.status, {"Retry-After": RETRY_AFTER} if self.status == 503 else None)


def busy(message: str, code: str) -> ApiError:
    """Send a client away that may come again."""
    return ApiError(503, message, code=code)
