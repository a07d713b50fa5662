"""The error table is the contract's: its codes and statuses are those of the conformance file and the SQL."""

import json
import re
from pathlib import Path

from runstate_server.foundation.errors import TABLE, Code, Retry
from tests.support import sources

CASES = json.loads((Path(__file__).parents[1] / "conformance/errors.json").read_text())["cases"]
NEVER_SENT = {"LEASE_RENEWALS_EXHAUSTED", "SERVICE_RATE_LIMITED"}
INVENTED = {"TOTALLY_NEW"}  # how clients take a code that they do not know
OURS_ALONE = {"INTERNAL"}
INSIDE = {"AGAIN"}  # told by the kernel to the server, never to a client


def test_codes_and_statuses_are_those_of_the_conformance_file():
    wanted = {case["code"]: case["status"] for case in CASES if case["code"] not in NEVER_SENT | INVENTED}
    assert {code.value: row.status for code, row in TABLE.items() if code not in OURS_ALONE} == wanted


def test_what_waiting_can_clear_is_what_clients_take_as_retryable():
    wanted = {
        case["code"]: case["retryable"] for case in CASES if case["code"] in set(Code) - {"UNAVAILABLE"}
    }
    assert {code: TABLE[Code(code)].retry is Retry.LATER for code in wanted} == wanted


def test_every_code_has_its_row():
    assert TABLE.keys() == set(Code)
    assert all(row.meaning for row in TABLE.values())


def test_the_kernel_refuses_with_codes_of_the_table_alone():
    used = {
        code
        for path in sources.kernel_files()
        for code in re.findall(r"kernel\.refuse\(\s*'(\w+)'", sources.without_comments(path.read_text()))
    }
    assert {"NOT_FOUND", "CONFLICT", "STALE_CLAIM", "SCOPE_CANCELLED"} <= used
    assert used <= {code.value for code in Code} | INSIDE
