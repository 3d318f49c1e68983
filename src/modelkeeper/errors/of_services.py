"""What can be wrong on the way to a service, or keep it from doing what was asked?"""

from modelkeeper.errors.base import ModelKeeperError


class CoordinatorUnreachable(ModelKeeperError):
    """The service did not answer, or answered nonsense."""

    code = "coordinator_unreachable"
    remedy = (
        "Check the address and that the service runs (`modelkeeper stats --zoo ADDRESS`). A training goes "
        "on cold, and what it registers waits in the spool until `modelkeeper sync`."
    )

    def __init__(self, url: str, problem: str, advice: str) -> None:
        super().__init__(url, problem, advice)
        self.url, self.problem, self.advice = url, problem, advice

    def __str__(self) -> str:
        return f"the coordinator at {self.url} cannot be used: {self.problem}. {self.advice}"


class NotReady(ModelKeeperError):
    """The service cannot take requests yet, or no longer."""

    code, status = "not_ready", 503
    remedy = (
        "Wait: a service that opens a large index is ready after some seconds, and clients try again by "
        "themselves. `/readyz` says what is missing."
    )

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason, advice)
        self.reason, self.advice = reason, advice

    def __str__(self) -> str:
        return f"the coordinator is not ready: {self.reason}. {self.advice}"


class NotAllowed(ModelKeeperError):
    """The token may not do this."""

    code, status = "not_allowed", 403
    remedy = (
        "Ask an administrator for a token with the scope that is named (`modelkeeper token add NAME --scope "
        "write`), or to be taken into the project."
    )

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem, advice)
        self.problem, self.advice = problem, advice

    def __str__(self) -> str:
        return f"not allowed: {self.problem}. {self.advice}"


class NotAuthenticated(NotAllowed):
    """There is no token, or none that the service knows."""

    code, status = "not_authenticated", 401
    remedy = (
        "Give a token in MODELKEEPER_TOKEN, as `modelkeeper token add` printed it. One that was revoked or "
        "has expired must be made anew."
    )


class QuotaExceeded(ModelKeeperError):
    """A user keeps too much."""

    code, status = "quota_exceeded", 403
    remedy = (
        "Remove or unpin models of yours, or ask an administrator for more (`modelkeeper user add NAME "
        "--models 200`)."
    )

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem, advice)
        self.problem, self.advice = problem, advice

    def __str__(self) -> str:
        return f"quota exceeded: {self.problem}. {self.advice}"


class TooManyRequests(QuotaExceeded):
    """A user asks too often, or the service is busy: it may be tried again after so many seconds."""

    code, status = "too_many_requests", 429
    remedy = (
        "Wait as long as is said; clients do so by themselves. Ask less often, or ask an administrator for a "
        "higher rate."
    )

    def __init__(self, problem: str, advice: str, seconds: str) -> None:
        ModelKeeperError.__init__(self, problem, advice, seconds)
        self.problem, self.advice, self.seconds = problem, advice, seconds

    @property
    def wait(self) -> float:
        """Seconds after which it may be tried again."""
        return float(self.seconds)

    def __str__(self) -> str:
        return f"{super().__str__()} It may be tried again after {self.seconds} s."
