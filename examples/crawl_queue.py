"""A crawler: workers fetch pages, a producer follows the links. Every page is fetched once.

python examples/crawl_queue.py work    # as many as you like
python examples/crawl_queue.py crawl   # ends the run when all is seen, and the workers with it
"""

import os
import sys

import runstate

# The pages of a small site with their links; /gone is linked to, and is not there.
SITE = {
    "/": ["/about", "/news", "/"],
    "/about": ["/", "/people"],
    "/people": ["/about"],
    "/news": ["/news/1", "/news/2", "/gone"],
    "/news/1": ["/news"],
    "/news/2": ["/news", "/people"],
}


@runstate.queue("crawl", attempts=2, lease="10s", concurrency=2, key=lambda page: page)
def fetch(page: str) -> dict:
    print(f"process {os.getpid()} fetches {page}", flush=True)
    if page not in SITE:
        raise LookupError(f"{page} is not there")  # tried again after a while, and then told to the producer
    return {"links": SITE[page]}


def crawl(start: str) -> tuple[list[str], list[str]]:
    """Returns: the pages that are there, and the links that lead nowhere."""
    jobs = {start: fetch.send(start)}
    waiting, seen, dead = [start], [], []
    while waiting:
        page = waiting.pop(0)
        try:
            links = jobs[page].result()["links"]
        except runstate.TaskFailedError as error:
            dead.append(f"{page} ({error.reason})")
            continue
        seen.append(page)
        for link in links:
            if link not in jobs:
                jobs[link] = fetch.send(link)
                waiting.append(link)
    return sorted(seen), dead


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        runstate.serve()
    else:
        pages, nowhere = crawl("/")
        print("pages:", *pages)
        print("dead links:", *nowhere)
        runstate.finish()
