"""AsyncRunstate: every primitive of the HTTP API as a handle."""

from types import TracebackType
from typing import TYPE_CHECKING

from runstate._config import check_space_id, resolve_config
from runstate._transport import Space, Transport
from runstate.handles.allowances import AllowancesAdminAPI
from runstate.handles.budgets import BudgetsAdminAPI
from runstate.handles.diagnostics import DiagnosticsAPI
from runstate.handles.events import EventsAPI
from runstate.handles.mailboxes import MailboxesAdminAPI
from runstate.handles.permits import PoolsAdminAPI
from runstate.handles.scopes import ScopeHandle, ScopesAPI
from runstate.handles.work_limits import WorkLimitsAdminAPI

if TYPE_CHECKING:
    from typing_extensions import Self


class AsyncRunstate:
    """One space of a runstate server, for asyncio code. Constructing it checks the settings and asks the
    server nothing. Usable from several event loops; safe after fork()."""

    def __init__(
        self,
        *,
        api_key: str | None = None,
        space_id: str | None = None,
        base_url: str | None = None,
        request_timeout_ms: int | None = None,
        retries: int | None = None,
        holder: str | None = None,
    ) -> None:
        config = resolve_config(
            api_key=api_key,
            space_id=space_id,
            base_url=base_url,
            request_timeout_ms=request_timeout_ms,
            retries=retries,
            holder=holder,
        )
        self._open(Space(Transport(config), config.space_id), owner=True)

    def scope(self, scope_id: str) -> ScopeHandle:
        """A handle for a scope whose id is known. Local: asks the server nothing."""
        return ScopeHandle(self._space, scope_id)

    def with_space(self, space_id: str) -> "AsyncRunstate":
        """The same client in another space: shares connections, key, holder and session. Closing the original
        closes it; closing it leaves the original open."""
        other = object.__new__(type(self))
        other._open(Space(self._space.transport, check_space_id(space_id)), owner=False)
        return other

    async def aclose(self) -> None:
        """Closes the connections. Later calls are refused."""
        if self._owner:
            await self._space.transport.aclose()

    async def __aenter__(self) -> "Self":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(space_id={self.space_id!r})"

    def _open(self, space: Space, *, owner: bool) -> None:
        self._space = space
        self._owner = owner
        self.space_id = space.space_id
        self.scopes = ScopesAPI(space)
        self.mailboxes = MailboxesAdminAPI(space)
        self.pools = PoolsAdminAPI(space)
        self.quotas = AllowancesAdminAPI(space)
        self.work_limits = WorkLimitsAdminAPI(space)
        self.budgets = BudgetsAdminAPI(space)
        self.diagnostics = DiagnosticsAPI(space)
        self.events = EventsAPI(space)


def space_of(client: AsyncRunstate) -> Space:
    """What the client's handles send their calls through."""
    return client._space  # noqa: SLF001 - this module's own
