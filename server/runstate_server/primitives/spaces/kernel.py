"""Finding keys, and the bootstrap of a first space and key."""

from runstate_server.foundation import ids
from runstate_server.kernel.call import Kernel, Reply

_BOOTSTRAP_LABEL = "bootstrap"


async def find_key(kernel: Kernel, key_hash: bytes) -> Reply:
    """The key with this hash. Refuses: UNAUTHENTICATED. Returns: what kernel.sql says of key_find."""
    return await kernel.call("key_find", key_hash, repeatable=True)


async def bootstrap(kernel: Kernel, *, space_id: str, api_key: str) -> Reply:
    """Create the space and the key, all permissions, if they are missing. Returns: {createdSpace,
    createdKey}."""
    return await kernel.call(
        "space_bootstrap",
        space_id,
        ids.new_id(),
        ids.key_hash(api_key),
        _BOOTSTRAP_LABEL,
        repeatable=True,
    )
