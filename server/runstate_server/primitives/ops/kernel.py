"""What a replica tells of the waits of its long polls, the call of one SQL function."""

import uuid
from collections.abc import Sequence

from runstate_server.kernel.call import Kernel
from runstate_server.web.waiting import Stay


async def publish(
    kernel: Kernel, replica: uuid.UUID, gone: Sequence[Stay], come: Sequence[Stay], now: float
) -> None:
    """Take back the waits that are over and write those that have begun, by how old they are at `now`. May be
    repeated."""
    waits = [stay.waiting for stay in come]
    await kernel.step(
        "waits_publish",
        replica,
        [stay.space_id for stay in gone],
        [stay.id for stay in gone],
        [stay.space_id for stay in come],
        [stay.id for stay in come],
        [w.kind for w in waits],
        [w.resource for w in waits],
        [w.scope_id for w in waits],
        [w.units for w in waits],
        [w.holder for w in waits],
        [w.session for w in waits],
        [now - stay.since for stay in come],
    )
