"""The wire of messages: payloads as they came, replies, listings, replays, and what is refused."""

import json
import re

import pytest

from tests.support.builders import Call, end, ok, refused, scope
from tests.support.journal import events
from tests.support.queues import (
    Delivery,
    dead,
    delivery,
    mailbox,
    nothing,
    redrive,
    row,
    sent,
    submitted,
    taken,
    task,
)

BYTES_MAX = 65_536
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
AS_WRITTEN = [
    "null",
    "-0.0",
    "1e400",
    "123456789012345678901234567890",
    '"\\u0000"',
    '"\\u00e9 é \\ud83d\\ude00 😀"',
    '{"b":1,"a":2,"":3}',
    '{"$payload":0}',
    '[{"$payload":1},{"$payload":"x"}]',
    '"{\\"$payload\\":0}"',
]


@pytest.fixture
def box(api):
    return mailbox(api, scope(api))


@pytest.mark.parametrize("payload", AS_WRITTEN, ids=ascii)
def test_payloads_inputs_and_outcomes_come_out_as_they_were_written(api, box, payload):
    body = f'{{"scopeId":"{box.scope}","payload":{payload}}}'
    ok(api.post(f"/mailboxes/{box.id}/messages", content=body.encode()), 201)
    assert f'"payload":{payload},' in box.recv().send(api).text
    body = f'{{"scopeId":"{box.scope}","mailboxId":"{box.id}","taskKey":"k","input":{payload}}}'
    made = ok(api.post("/tasks", content=body.encode()), 201)["taskId"]
    admitted = box.admit().send(api)
    assert f'"payload":{payload},' in admitted.text
    token = admitted.json()["token"]
    body = f'{{"token":"{token}","result":{{"payload":{payload}}}}}'
    ok(api.post(f"/messages/{made}/complete", content=body.encode()))
    seen = api.get(f"/tasks/{made}").text
    assert f'"input":{payload},"outcome":{payload},' in seen
    assert f'"input":{payload},"outcome":{payload},' in api.get("/tasks").text


@pytest.mark.parametrize("where", ["payload", "input", "result"])
def test_what_is_over_65536_bytes_is_refused_and_what_is_not_is_carried(api, box, where):
    fits = "é" * ((BYTES_MAX - 2) // 2)
    for text in (fits, fits + "a"):
        if where == "payload":
            response = box.send(text).send(api)
        elif where == "input":
            response = box.submit(input=text).send(api)
        else:
            sent(api, box)
            held = taken(api, box.recv())
            response = held.complete(text).send(api)
        if text is fits:
            assert response.is_success, response.text
        else:
            message = refused(response, "VALIDATION_FAILED")
            assert f"exceeds {BYTES_MAX} bytes" in message
    if where == "result":
        assert row(api, box, held.id)["state"] == "LEASED"
        ok(held.nack(retry=False).send(api))


def test_a_payload_that_is_absent_is_null(api, box):
    ok(Call("POST", f"/mailboxes/{box.id}/messages", {"scopeId": box.scope}).send(api), 201)
    assert taken(api, box.recv()).payload is None


def test_times_are_utc_with_milliseconds(api, box):
    sent(api, box, deadline="2999-12-31T23:59:59.123456+02:00")
    told = ok(box.recv().send(api))
    assert told["message"]["deadline"] == "2999-12-31T21:59:59.123Z"
    assert INSTANT.fullmatch(told["leaseExpiresAt"])


# Replies


def test_a_result_is_sent_on_as_a_new_message_in_the_same_transaction(api, space, database_url, box):
    answers = mailbox(api, box.scope, "answers")
    made = submitted(api, box, input="question")
    held = taken(api, box.recv())
    answer = ok(held.complete({"n": 42}, mailboxId=answers.id).send(api))
    assert answer.keys() == {"state", "replyId"}
    assert answer["state"] == "ACKED"
    assert task(api, made)["outcome"] == {"n": 42}
    reply = ok(answers.recv().send(api))["message"]
    assert (reply["id"], reply["payload"], reply["scopeId"], reply["taskId"]) == (
        answer["replyId"],
        {"n": 42},
        box.scope,
        None,
    )
    told = [e.type for e in events(database_url, space.id, "message.sent", "task.succeeded")]
    assert sorted(told) == ["message.sent", "task.succeeded"]


def test_a_reply_goes_to_the_scope_that_is_named(api, box):
    answers = mailbox(api, scope(api), "answers")
    sent(api, box)
    ok(taken(api, box.recv()).complete(1, mailboxId=answers.id, scopeId=answers.scope).send(api))
    nothing(api, answers.within(box.scope).recv())
    assert taken(api, answers.recv()).payload == 1


def test_a_reply_with_a_work_key_is_sent_once(api, box):
    answers = mailbox(api, box.scope, "answers")
    ids = []
    for i in range(2):
        sent(api, box)
        call = taken(api, box.recv()).complete(i, mailboxId=answers.id, workKey="k")
        ids.append(ok(call.send(api))["replyId"])
    assert ids[0] == ids[1]
    assert taken(api, answers.recv()).payload == 0
    nothing(api, answers.recv())


@pytest.mark.parametrize("why", ["mailbox", "scope", "ended scope", "full"])
def test_a_reply_that_cannot_be_sent_leaves_the_message_with_its_holder(api, box, why):
    unknown = "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"
    answers = mailbox(api, scope(api), "answers", backlogLimit=1)
    sent(api, answers)
    ended = scope(api)
    ok(end(ended).send(api))
    result, code = {
        "mailbox": ({"mailboxId": unknown}, "NOT_FOUND"),
        "scope": ({"mailboxId": answers.id, "scopeId": unknown}, "NOT_FOUND"),
        "ended scope": ({"mailboxId": box.id, "scopeId": ended}, "SCOPE_CANCELLED"),
        "full": ({"mailboxId": answers.id, "scopeId": answers.scope}, "BACKLOG_FULL"),
    }[why]
    message = sent(api, box)
    held = taken(api, box.recv())
    refused(held.complete(1, **result).send(api), code)
    assert row(api, box, message)["state"] == "LEASED"
    ok(held.complete(1).send(api))


def test_a_repeated_completion_sends_no_second_reply(api, box):
    answers = mailbox(api, box.scope, "answers")
    sent(api, box)
    call = taken(api, box.recv()).complete(1, mailboxId=answers.id)
    first = ok(call.send(api, "key"))
    assert ok(call.send(api, "key")) == first
    taken(api, answers.recv())
    nothing(api, answers.recv())


def test_a_reply_to_its_own_mailbox_is_the_next_message(api):
    box = mailbox(api, scope(api), mode="INBOX")
    sent(api, box, 0)
    for i in range(3):
        held = taken(api, box.recv())
        assert held.payload == i
        ok(held.complete(i + 1, mailboxId=box.id).send(api))


# Replays


def test_a_recv_whose_reply_was_lost_gets_the_same_lease_again_payload_included(api, box):
    sent(api, box, {"text": "\u0000é", "n": 1})
    sent(api, box, "second")
    call = box.recv()
    first = call.send(api, "lost")
    token = ok(first)["token"]
    again = call.send(api, "lost")
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["Idempotent-Replayed"] == "true"
    ok(Delivery(first.json()["message"]["id"], token, 1, None).complete().send(api))
    assert call.send(api, "lost").content == first.content
    assert taken(api, box.recv()).payload == "second"


def test_nothing_is_not_kept_and_the_same_key_is_served_later(api, box):
    call = box.recv()
    assert call.send(api, "later").status_code == 204
    sent(api, box)
    delivery(ok(call.send(api, "later")))


def test_a_nack_repeated_with_its_key_costs_one_attempt(api, box):
    message = sent(api, box)
    call = taken(api, box.recv()).nack(error="e", delaySeconds=0)
    assert ok(call.send(api, "key")) == ok(call.send(api, "key"))
    assert row(api, box, message)["attempt"] == 1


# Listings


def test_messages_are_listed_in_every_state_newest_first(api, box):
    waiting = sent(api, box, workKey="w", priority=-3)
    held = submitted(api, box)
    taken(api, box.admit(holder="ann"))
    gone = dead(api, box, priority=5)
    page = ok(box.messages().send(api))
    assert page["nextCursor"] is None
    assert [(m["id"], m["state"]) for m in page["messages"]] == [
        (gone.id, "DEAD"),
        (held, "LEASED"),
        (waiting, "READY"),
    ]
    first = page["messages"][2]
    assert first == {
        "id": waiting,
        "scopeId": box.scope,
        "state": "READY",
        "attempt": 0,
        "priority": -3,
        "workKey": "w",
        "taskId": None,
        "deadline": None,
        "holder": None,
        "leaseExpiresAt": None,
        "lastError": None,
        "createdAt": first["createdAt"],
    }
    second = page["messages"][1]
    assert (second["taskId"], second["holder"], second["attempt"]) == (held, "ann", 1)
    assert INSTANT.fullmatch(second["leaseExpiresAt"])


def test_a_state_and_a_scope_filter_the_listing(api, box, clock):
    child = box.within(scope(api, parentId=box.scope))
    there = sent(api, child, priority=1)
    lapsed = taken(api, box.recv_below(lease_s=60)).id
    gone = dead(api, box).id
    acked = sent(api, box)
    ok(taken(api, box.recv()).complete().send(api))
    clock.shift(61)

    def listed(**query):
        return [m["id"] for m in ok(box.messages(**query).send(api))["messages"]]

    assert lapsed == there
    assert listed(state="READY") == [there]
    assert listed(state="LEASED") == []
    assert listed(state="DEAD") == [gone]
    assert listed(state="ACKED") == [acked]
    assert listed(scopeId=child.scope) == [there]
    assert listed(scopeId=box.scope) == [acked, gone]
    assert listed(scopeId=box.scope, state="READY") == []


@pytest.mark.parametrize("what", ["messages", "tasks"])
def test_pages_show_everything_once_though_more_arrives_meanwhile(api, box, what):
    make = sent if what == "messages" else lambda client, where: submitted(client, where, str(len(made)))
    made: list[str] = []
    while len(made) < 7:
        made.append(make(api, box))
    path = f"/mailboxes/{box.id}/messages" if what == "messages" else "/tasks"
    found, cursor = [], None
    while True:
        page = ok(api.get(path, params={"limit": 3} | ({"cursor": cursor} if cursor else {})))
        found += [m["id"] for m in page[what]]
        cursor = page["nextCursor"]
        if cursor is None:
            break
        made.append(make(api, box))
    assert found == made[:7][::-1]


def test_tasks_are_listed_by_each_filter_and_all_of_them(api, box):
    other = mailbox(api, scope(api), "other")
    a, b, c = submitted(api, box, "a"), submitted(api, box, "b"), submitted(api, other, "a")
    sent(api, box)
    ok(taken(api, other.admit()).complete().send(api))

    def listed(**query):
        return [t["id"] for t in ok(api.get("/tasks", params=query))["tasks"]]

    assert listed() == [c, b, a]
    assert listed(scopeId=box.scope) == [b, a]
    assert listed(mailboxId=other.id) == [c]
    assert listed(taskKey="a") == [c, a]
    assert listed(state="QUEUED") == [b, a]
    assert listed(state="SUCCEEDED", taskKey="a") == [c]
    assert listed(state="SUCCEEDED", scopeId=box.scope) == []
    assert ok(api.get("/tasks"))["tasks"][0] == task(api, c)


# Refusals


def test_a_batch_over_four_mebibytes_is_refused_before_it_is_read_and_one_below_is_taken(api, box):
    large = [box.task(str(i), input="a" * 60_000) for i in range(69)]
    body = json.dumps({"tasks": large}).encode()
    assert 4_000_000 < len(body) < 4 * 1024 * 1024
    padded = body + b" " * (4 * 1024 * 1024 - len(body))
    assert len(ok(api.post("/tasks/batch", content=padded))["tasks"]) == 69
    refused(api.post("/tasks/batch", content=padded + b" "), "VALIDATION_FAILED", status=413)


@pytest.mark.parametrize("retry", [None, 0, "true"])
def test_a_nack_says_whether_to_retry(api, box, retry):
    sent(api, box)
    held = taken(api, box.recv())
    body = {"token": held.token} | ({} if retry is None else {"retry": retry})
    message = refused(Call("POST", f"/messages/{held.id}/nack", body).send(api), "VALIDATION_FAILED")
    assert "retry" in message


def test_an_error_text_is_cut_never_refused(api, box):
    for error, kept in (("é" * 1_999 + "xyz", "é" * 1_999 + "x"), ("a\0b", "a\ufffdb"), ("", "")):
        message = sent(api, box)
        ok(taken(api, box.recv()).nack(retry=False, error=error).send(api))
        assert row(api, box, message)["lastError"] == kept


def test_a_redrive_takes_no_field(api, box):
    gone = dead(api, box)
    refused(Call("POST", f"/messages/{gone.id}/redrive", {"token": "t"}).send(api), "VALIDATION_FAILED")
    ok(redrive(gone.id).send(api))
