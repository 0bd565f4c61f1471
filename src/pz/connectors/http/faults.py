"""What went wrong between us and the server, as the contract's errors.

Transient: 408, 429, 500, 502, 503, 504, timeouts, and connections that failed or broke. All else is permanent. A message
names the method and the path as the project spells it, never a query, a body or a URL that the server chose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pz.connectors.http.waits import retry_after
from pz.errors import Code, ConnectorError, PermanentError, TransientError

__all__ = ["TRANSIENT", "NoAnswer", "NothingSent", "Refused", "Unavailable", "network_errors", "status_error"]

TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})

_WORDS = {
    400: "the request is not understood",
    401: "the credentials are refused",
    403: "access is refused",
    404: "there is nothing at this path",
    405: "the method is not allowed",
    406: "the format is not offered",
    409: "there is a conflict",
    410: "what was asked for is gone",
    413: "the request is too large",
    415: "the format is not accepted",
    422: "the content is refused",
    429: "too many requests",
    500: "the server failed",
    502: "a gateway failed",
    503: "the server is not available",
    504: "a gateway waited in vain",
}

_HINTS = {
    400: "check query and body of the dataset or output",
    401: "check auth of the connection; a token may have expired",
    403: "check what the credentials may do",
    404: "check base_url and path",
    405: "check method",
    413: "lower rows_per_request or max_request_kb",
    415: "check body_format",
    422: "compare the columns of the pipeline with what the API takes",
    429: "set rate_limit on the connection, or raise retry.max_attempts",
}


class NothingSent(TransientError):
    """The connection could not be made: the server has seen nothing of the request."""


class NoAnswer(TransientError):
    """The request was sent, in whole or in part, and no answer came: the server may have done what was asked."""


class Refused(PermanentError):
    """A status that another attempt would not change."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, code=Code.PZ0761, hint=_HINTS.get(status))
        self.status = status


class Unavailable(TransientError):
    """A status that another attempt may change."""

    def __init__(self, message: str, status: int, retry_after: float | None) -> None:
        super().__init__(message, retry_after=retry_after, code=Code.PZ0762, hint=_HINTS.get(status))
        self.status = status

    @property
    def may_have_taken(self) -> bool:
        """Whether what was sent may have been done before this answer: a gateway knows only that none came to it."""
        return self.status >= 500


def status_error(subject: str, status: int, headers: Mapping[str, str], excerpt: str) -> ConnectorError:
    """The error of a response that is no success. ``excerpt`` is redacted already; empty when there is none to show."""
    words = _WORDS.get(status, "a redirect is not followed" if 300 <= status < 400 else "it is refused")
    message = f"{subject}: status {status}: {words}"
    if excerpt:
        message += f"; the server says: {excerpt}"
    if status in TRANSIENT:
        return Unavailable(message, status, retry_after(headers))
    return Refused(message, status)


@contextmanager
def network_errors(subject: str, peer: str) -> Iterator[None]:
    """Raise what the client library raises as the contract's errors, in words of our own: its texts may hold URLs.

    ``peer`` is the host and port that are connected to.
    """
    import httpcore

    try:
        yield
    except (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout) as error:
        words = f"no connection to {peer}{' in time' if isinstance(error, httpcore.TimeoutException) else ''}"
        reason = _reason(error)
        raise NothingSent(f"{subject}: {words}{reason}", code=Code.PZ0762) from error
    except httpcore.ProxyError as error:
        raise NothingSent(f"{subject}: the proxy refused", code=Code.PZ0762) from error
    except httpcore.TimeoutException as error:
        raise NoAnswer(f"{subject}: no answer in time", code=Code.PZ0762) from error
    except httpcore.RemoteProtocolError as error:
        broke = "disconnected" in str(error) or "closed connection" in str(error)
        words = "the connection broke before the answer was whole" if broke else "the answer is not valid HTTP"
        raise NoAnswer(f"{subject}: {words}", code=Code.PZ0762) from error
    except (httpcore.NetworkError, OSError) as error:
        if isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError):
            raise  # the disk, not the network
        raise NoAnswer(f"{subject}: the connection broke", code=Code.PZ0762) from error
    except (httpcore.LocalProtocolError, httpcore.UnsupportedProtocol, UnicodeError, ValueError) as error:
        raise PermanentError(f"{subject}: the request cannot be formed", code=Code.PZ0760) from error


def _reason(error: BaseException) -> str:
    """Why a connection failed, where the operating system told; a certificate's fault is told, too."""
    text = str(error)
    for words, told in (
        ("CERTIFICATE_VERIFY_FAILED", "the server's certificate is not trusted"),
        ("Name or service not known", "the host is not known"),
        ("refused", "it was refused"),
    ):
        if words in text:
            return f" ({told})"
    return ""
