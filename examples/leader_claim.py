"""One leader among many processes. Start a few, kill the one that leads, and another takes over:

python examples/leader_claim.py anna
"""

import asyncio
import sys

import runstate


async def lead(lease: runstate.ClaimLease) -> None:
    # Hand the generation to whatever the leader writes to, and have that refuse a smaller one than it has
    # seen: this stops a leader that was paused and does not know yet that another leads.
    print(f"{NAME} leads, generation {lease.generation}", flush=True)
    while True:
        lease.raise_if_lost()
        await asyncio.sleep(0.2)  # here it would do what leaders do


async def main() -> None:
    async with runstate.AsyncRunstate(holder=NAME) as rs:
        claim = rs.scope(await runstate.arun_id()).claim("leader")
        while True:
            try:
                await claim.run(lead, lease_seconds=2, wait=True, timeout_ms=60_000)
            except (runstate.WaitTimeoutError, runstate.LeaseLostError):
                print(f"{NAME} stands in line", flush=True)
            except runstate.ScopeCancelledError:
                print(f"{NAME} goes home: the run is over", flush=True)
                return


if __name__ == "__main__":
    NAME = sys.argv[1]
    asyncio.run(main())
