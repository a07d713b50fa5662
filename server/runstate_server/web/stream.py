"""Server-sent events (WHATWG HTML, section 9.2)."""

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any, Final, Protocol

from runstate_server.foundation import bounds
from runstate_server.foundation.errors import Code, Refusal
from runstate_server.kernel.call import Reply
from runstate_server.web import replies
from runstate_server.web.caller import Caller, Permission
from runstate_server.web.exchange import Exchange

DESCRIPTION: Final = "one event after another: `id:` its cursor, `data:` the event as in /events"
_COMMENT: Final = ":\n\n"


class Feed(Protocol):
    """What can be read on and on."""

    events: list[dict[str, Any]]

    async def look(self) -> Reply:
        """The next look; `events` are what it brought, facts.done whether the end was reached."""


async def lines(x: Exchange, feed: Feed, reply: Reply) -> AsyncIterator[str]:
    """What is read, from the first look's `reply` on; a comment when nothing was for a while. Ends when the
    replica drains, the key is no longer good, the cursor has expired meanwhile, or the client has gone; an
    EventSource then connects again and resumes."""
    polls = x.floor.long_polls
    allowed_until = time.monotonic() + bounds.key_trust_s
    polls.open += 1
    try:
        with polls.bus.subscribe(x.caller.space_id, reply.sleep) as sleeper:
            quiet_since = time.monotonic()
            while reply.code is None and not polls.drain.draining:
                for event in feed.events:
                    yield f"id: {event['cursor']}\ndata: {replies.dumps(event)}\n\n"
                if feed.events:
                    quiet_since = time.monotonic()
                elif reply.facts["done"]:
                    await polls.sleep(sleeper.event, min(bounds.key_trust_s, bounds.stream_comment_s))
                if time.monotonic() - quiet_since >= bounds.stream_comment_s:
                    yield _COMMENT
                    quiet_since = time.monotonic()
                if time.monotonic() > allowed_until:
                    if not await _still_allowed(x):
                        return
                    allowed_until = time.monotonic() + bounds.key_trust_s
                sleeper.looks()
                with contextlib.suppress(Refusal):  # the database is away: the next round looks again
                    reply = await feed.look()
    finally:
        polls.open -= 1


async def _still_allowed(x: Exchange) -> bool:
    """Whether the key is still good here; a revocation is effective within seconds, on open streams too."""
    try:
        caller: Caller = await x.request.scope["runstate.caller_again"]()
        caller.need(Permission.OBSERVE)
    except Refusal as refusal:
        return refusal.code == Code.UNAVAILABLE  # nothing is known: as before
    return True
