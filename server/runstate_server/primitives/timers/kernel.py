"""The verbs of timers, each the call of one SQL function."""

import uuid
from datetime import datetime

from runstate_server.foundation import bounds
from runstate_server.kernel.call import Idempotency, Kernel, Reply
from runstate_server.web.caller import Caller


async def set_timer(
    kernel: Kernel,
    caller: Caller,
    *,
    timer_id: uuid.UUID,
    scope_id: uuid.UUID,
    name: str | None,
    after_s: float | None,
    at: datetime | None,
    token: str,
    idempotency: Idempotency | None,
) -> Reply:
    """Set a timer to `at`, or to after_s seconds from now; a name that has its timer is answered with it.
    A reply that changed something says in again_s, seconds, when the timer is due; null: it has fired.
    Refuses: VALIDATION_FAILED (too far ahead), NOT_FOUND (scope), SCOPE_CANCELLED, DEADLINE_EXCEEDED.
    Returns: {id, name, scopeId, state, fireAt, firedAt, now, token?}."""
    return await kernel.call(
        "timer_set",
        caller.space_id,
        timer_id,
        scope_id,
        name,
        after_s,
        at,
        float(bounds.timer_ahead_s_max),
        token,
        idempotency=idempotency,
    )


async def view(kernel: Kernel, caller: Caller, *, timer_id: uuid.UUID) -> Reply:
    """The timer at this instant, without its token; one that is due is fired first. Refuses: NOT_FOUND.
    Returns: {id, name, scopeId, state, fireAt, firedAt, now}."""
    return await kernel.call("timer_view", caller.space_id, timer_id, repeatable=True)


async def poll(
    kernel: Kernel, caller: Caller, *, scope_id: uuid.UUID, idempotency: Idempotency | None
) -> Reply:
    """The timers of exactly this scope that have fired and are not acknowledged. Does no harm when it runs
    twice. Refuses: NOT_FOUND (scope), SCOPE_CANCELLED, DEADLINE_EXCEEDED.
    Returns: {timers: [{id, name, token, firedAt}]}."""
    key = (idempotency.key, idempotency.fingerprint) if idempotency else (None, None)
    return await kernel.call(
        "timers_poll", caller.space_id, scope_id, bounds.timers_polled_max, *key, repeatable=True
    )


async def ack(
    kernel: Kernel, caller: Caller, *, timer_id: uuid.UUID, token: str, idempotency: Idempotency | None
) -> Reply:
    """Take note that it has fired. Refuses: NOT_FOUND, CONFLICT (not its token). Returns: {state: ACKED}."""
    return await kernel.call("timer_ack", caller.space_id, timer_id, token, idempotency=idempotency)


async def cancel(
    kernel: Kernel, caller: Caller, *, timer_id: uuid.UUID, idempotency: Idempotency | None
) -> Reply:
    """Cancel one that has not fired. Refuses: NOT_FOUND, CONFLICT (it has fired). Returns: the view."""
    return await kernel.call("timer_cancel", caller.space_id, timer_id, idempotency=idempotency)
