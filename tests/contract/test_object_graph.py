"""The object graph is that of the reference page, signature by signature: the page is walked, class by class.

tests/conformance/python-sdk.json holds what the page's code says, as tests/support/reference.py reads it.
"""

import asyncio
import contextlib
import datetime as dt
import inspect
import json
import types
import typing

import pytest

import runstate
from runstate.blocking import Face, _face_class
from tests.support import reference

PAGE = json.loads(reference.DATA.read_text())
CLASSES, FUNCTIONS = PAGE["classes"], PAGE["functions"]
ERRORS = [name for name in CLASSES if name.endswith("Error")]
TYPED = [name for name, told in CLASSES.items() if told["bases"] == ["TypedDict"]]
OBJECTS = [name for name in CLASSES if name not in {*ERRORS, *TYPED}]
METHODS = [(name, method) for name, told in CLASSES.items() for method in told["methods"]]
OF_ASYNC = [(name, method) for name, method in METHODS if name != "Runstate"]
IDS = [".".join(each) for each in OF_ASYNC]
WORDS = {"asyncio": asyncio, "datetime": dt.datetime} | vars(typing)


def kind(name):
    """The class of that name, exported from the package."""
    assert name in runstate.__all__, f"{name} is not exported"
    return getattr(runstate, name)


def words():
    """What the page's annotations may name."""
    return WORDS | {name: getattr(runstate, name) for name in runstate.__all__}


def promised(told):
    """The signature that the page gives a function."""
    made = {}
    returns = "" if told["returns"] is None else f" -> {told['returns']}"
    source = f"from __future__ import annotations\ndef f({', '.join(told['parameters'])}){returns}: ..."
    exec(source, made)
    return inspect.signature(made["f"])


def parameters(signature):
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


def takes(wide, narrow):
    """Whether whoever takes the one takes the other: a wider type, float for int, Any for all."""
    wide, narrow = (type(None) if each is None else each for each in (wide, narrow))
    if wide in (typing.Any, object) or wide == narrow:
        return True
    if isinstance(narrow, types.UnionType) or typing.get_origin(narrow) is typing.Union:
        return all(takes(wide, each) for each in typing.get_args(narrow))
    if isinstance(wide, types.UnionType) or typing.get_origin(wide) is typing.Union:
        return any(takes(each, narrow) for each in typing.get_args(wide))
    outer, inner = typing.get_origin(wide) or wide, typing.get_origin(narrow) or narrow
    return inner is not typing.Any and (issubclass(inner, outer) or (outer, inner) == (float, int))


def check_types(function, told, owner=None):
    """Each argument of the page's type is taken, and what comes back is of its type."""
    real = typing.get_type_hints(function, localns={"Self": owner})
    for name, parameter in promised(told).parameters.items():
        if parameter.annotation is not inspect.Parameter.empty:
            assert takes(real[name], eval(parameter.annotation, words())), f"{name}: {real[name]}"
    if told["returns"] is not None:
        assert takes(eval(told["returns"], words()), real["return"]), real["return"]


def check(function, told, owner=None):
    """Names, kinds, defaults and types are the same, and it is a coroutine where the page has one."""
    generates = told["returns"] is not None and told["returns"].startswith("AsyncIterator")
    assert inspect.isasyncgenfunction(function) == generates
    assert inspect.iscoroutinefunction(function) == (told["kind"] == "async" and not generates)
    assert parameters(inspect.signature(function)) == parameters(promised(told))
    check_types(function, told, owner)


@pytest.mark.parametrize(("name", "method"), OF_ASYNC, ids=IDS)
def test_a_method_is_that_of_the_page(name, method):
    told, owner = CLASSES[name]["methods"][method], kind(name)
    member = inspect.getattr_static(owner, method)
    if told["kind"] == "property":
        assert isinstance(member, property)
        check_types(member.fget, told, owner)
        return
    if told["parameters"] == ["self", "*exc"]:  # its three arguments may have names
        assert inspect.iscoroutinefunction(member)
        inspect.signature(member).bind(None, None, None, None)
        return
    check(member, told, owner)


@pytest.mark.parametrize("method", CLASSES["Runstate"]["methods"])
def test_a_method_of_the_blocking_client_is_that_of_the_page(method):
    told, member = CLASSES["Runstate"]["methods"][method], getattr(runstate.Runstate, method)
    assert not inspect.iscoroutinefunction(member)
    if method == "__init__":
        assert parameters(inspect.signature(member)) == parameters(
            promised(CLASSES["AsyncRunstate"]["methods"]["__init__"])
        )
    elif told["parameters"] == ["self", "*exc"]:
        inspect.signature(member).bind(None, None, None, None)
    else:
        check(member, told, runstate.Runstate)


@pytest.mark.parametrize(("name", "method"), OF_ASYNC, ids=IDS)
def test_every_method_is_there_without_await(name, method):
    told = CLASSES[name]["methods"][method]
    if name in {*ERRORS, *TYPED} or method.startswith("__") or (name, method) == ("AsyncRunstate", "aclose"):
        return  # dunders and `close` are on the page by themselves
    owner = runstate.Runstate if name == "AsyncRunstate" else _face_class(kind(name))
    assert issubclass(owner, Face)
    if told["kind"] != "property":  # those are read from the object behind
        member = getattr(owner, method)
        assert not inspect.iscoroutinefunction(member)
        assert not inspect.isasyncgenfunction(member)
        assert parameters(inspect.signature(member)) == parameters(promised(told))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_that_of_the_page(name):
    check(kind(name), FUNCTIONS[name])


@pytest.mark.parametrize("name", TYPED)
def test_a_typed_dict_has_the_page_s_members_and_needs_none(name):
    wanted = {key: eval(value, words()) for key, value in CLASSES[name]["attributes"].items()}
    assert typing.get_type_hints(kind(name)) == wanted
    assert kind(name).__total__ is False


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_has_the_page_s_bases_and_attributes(name):
    [base] = CLASSES[name]["bases"]
    assert issubclass(kind(name), eval(base, words()))
    made = kind(name)("no", code="CLAIM_HELD", status=409, request_id="req-1", retry_after_ms=250)
    for attribute, told in CLASSES["RunstateError"]["attributes"].items():
        assert isinstance(getattr(made, attribute), eval(told, words()))
    assert kind(name)("no").request_id is None


async def grown(client):
    """One object of each class of the page, as that client makes them; with it what ends their leases."""

    async def got(made):
        return await made if inspect.isawaitable(made) else made

    scope = await got(client.scopes.create())
    await got(client.mailboxes.ensure("work"))
    await got(client.pools.ensure("browser", capacity=1))
    await got(client.quotas.ensure("search", units_per_window=1, window_seconds=60))
    await got(client.budgets.ensure("usd", currency="USD", scale=2, limit="5.00"))
    box, pool, claim = scope.mailbox("work"), scope.pool("browser"), scope.claim("key")
    quota, money = scope.quota("search"), scope.budget("usd")
    await got(box.send({"n": 1}))
    delivery = await got(box.receive())
    ticket = await got(box.submit({"n": 2}, key="two"))
    lease, slot = await got(claim.acquire()), await got(pool.acquire(wait=False))
    found = [
        *(client, client.scopes, client.mailboxes, client.pools, client.quotas, client.work_limits),
        *(client.budgets, client.events, client.diagnostics),
        *(scope, scope.timers, scope.barriers, scope.groups),
        *(box, claim, pool, money, quota, delivery, ticket, lease, slot),
        await got(box.admit()),
        await got(money.reserve(amount="1.00")),
        await got(scope.barriers.create(target=2)),
        await got(scope.timers.create(after_seconds=3600)),
        await got(scope.groups.create(mailbox="work", condition="ALL_TERMINAL")),
    ]
    for each in (lease, slot):
        await got(each.release())
    return {type(each).__name__: each for each in found}


def check_attributes(found, name):
    for attribute, told in CLASSES[name]["attributes"].items():
        value = getattr(found[name], attribute)
        if isinstance(value, Face):  # a face stands for an object, and is named as its class
            assert type(value).__name__ == told
        else:
            assert isinstance(value, eval(told, words())), attribute


async def test_every_object_of_the_async_client_has_the_page_s_attributes(server, space):
    settings = {"base_url": server.url, "space_id": space.id, "api_key": space.key}
    async with runstate.AsyncRunstate(**settings) as client:
        found = await grown(client)
        assert found.keys() == {*OBJECTS} - {"Runstate"}
        for name in found:
            assert type(found[name]) is kind(name)
            check_attributes(found, name)


def test_every_object_of_the_blocking_client_has_the_page_s_attributes(server, space):
    settings = {"base_url": server.url, "space_id": space.id, "api_key": space.key}
    with contextlib.closing(runstate.Runstate(**settings)) as client:
        found = asyncio.run(grown(client))
        found["AsyncRunstate"] = found.pop("Runstate")
        assert found.keys() == {*OBJECTS} - {"Runstate"}
        for name in found:
            assert isinstance(found[name], Face)
            check_attributes(found, name)
            properties = [m for m, told in CLASSES[name]["methods"].items() if told["kind"] == "property"]
            assert all(hasattr(found[name], each) for each in properties)
