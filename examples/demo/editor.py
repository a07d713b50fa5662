"""The editor of the demo: it asks for reviews of drafts, and takes so many good ones."""

from typing import Any

from reviews import review
from telling import NAME, orders, tell

import runstate


def main() -> None:
    for asked, _ in orders():

        def is_good(result: dict[str, Any], draft: dict[str, Any], least: int = asked["good"]) -> bool:
            tell("judges", draft=draft["n"], score=result["score"])
            return bool(result["score"] >= least)

        try:
            tell("got", reviews=review.gather(asked["drafts"], need=asked["need"], accept=is_good))
        except runstate.RunstateError as error:
            tell("refused", error=type(error).__name__, message=str(error))


if __name__ == "__main__":
    runstate.configure(worker=NAME)
    main()
