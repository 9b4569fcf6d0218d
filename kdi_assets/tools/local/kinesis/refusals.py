"""How the server refuses a request."""

from __future__ import annotations


class ApiRefusal(Exception):
    """An error that the API answers, for example ``ResourceNotFoundException``; clients see it as their own error."""

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
