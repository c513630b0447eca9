"""The OpenAPI document: complete, valid, and true. Requests made from it get answers that it documents, and no 5xx."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from engine.errors import STATUS
from tests.daemon.kit import DaemonProcess, clean_environment, daemon_process, request
from topics_daemon.openapi import document
from topics_daemon.openapi_routes import OPERATIONS
from topics_daemon.routes.table import ROUTES, Body

KEY = "full"
AUTH = f"Authorization: Bearer {KEY}"
KEYS = f"{KEY},reader:read,writer:write,limited:read+write+delete+admin:lo"
STREAMS = {"/v0/ws", "/v0/watch/{wid}", "/v0/topics/{topic}/work"}
"""Their answers do not end; they have tests of their own."""
EXAMPLES_MAX = int(os.environ.get("TOPICS_TEST_REQUESTS", "24"))
"""Valid requests of one operation, and as many invalid ones. With hundreds nothing else was found, in minutes."""
ASKING = (KEY, KEY, KEY, KEY, KEY, "reader", "writer", "limited", "wrong", None)
"""Who asks: mostly somebody who may do everything."""
THERE = {"seq": 1, "name": "place", "router": "copying"}
"""Parameters of paths that lead somewhere."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """A daemon with a topic and a queue, that asks for keys."""
    with daemon_process(environ=clean_environment(TOPICS_API_KEYS=KEYS)) as running:
        for name, config in (("log", {}), ("queue", {"type": "queue", "dead_letter": "dead", "max_deliveries": 2})):
            assert running.ask(request("PUT", f"/v0/topics/{name}", config, AUTH)).status == 201
        for name in ("log", "queue"):
            body = {"records": [{"data": number, "tag": "a"} for number in range(20)]}
            assert running.ask(request("POST", f"/v0/topics/{name}", body, AUTH)).status == 200
        make_others(running)
        yield running


def make_others(running: DaemonProcess) -> None:
    """What else the parameters of paths mean, where it is not there any more."""
    for path, body in (
        ("/v0/topics/log/cursors/place", {"seq": 1}),
        ("/v0/routers/copying", {"source": "orders", "dest": "audit"}),
    ):
        assert running.ask(request("PUT", path, body, AUTH)).status in (200, 201)


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, operation)
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_route_is_in_the_document_and_nothing_else() -> None:
    routes = {(method, "/" + "/".join(pattern)) for pattern, methods in ROUTES.items() for method in methods}
    assert set(OPERATIONS) == routes
    assert len(operations()) == len(routes)


def test_what_a_route_does_with_a_body_is_what_the_document_says() -> None:
    for pattern, methods in ROUTES.items():
        for method, route in methods.items():
            operation = OPERATIONS[method, "/" + "/".join(pattern)]
            assert (operation.takes is None) == (route.body is Body.IGNORED or route.streams_body), (method, pattern)
            assert operation.example is None or operation.takes is not None


def test_the_schemas_are_valid_and_every_reference_leads_somewhere() -> None:
    shown = document()
    for name, schema in shown["components"]["schemas"].items():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
        assert name.isidentifier(), name
        assert schema.get("additionalProperties") is not False, f"{name}: unknown fields are ignored, not refused"
    references = set()

    def look(value: Any) -> None:
        if isinstance(value, dict):
            references.update([value["$ref"]] if "$ref" in value else [])
            for inner in value.values():
                look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    look(shown)
    for reference in references:
        _, _, kind, name = reference.split("/")
        assert name in shown["components"][kind], reference
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(ids) == len(set(ids))
    paths = [part for path in shown["paths"] for part in path.split("/") if part.startswith(("{", ":"))]
    assert all(part.endswith("}") and len(part) > 2 for part in paths)


def test_every_status_of_the_wire_is_documented_somewhere() -> None:
    shown = document()
    used = {int(status) for _, _, operation in operations() for status in operation["responses"]}
    # 405 is what a path answers to methods that it does not have.
    assert set(STATUS.values()) - used <= {405}
    assert {str(status) for status in STATUS.values()} == set(shown["components"]["responses"])


def test_the_daemon_serves_the_document_to_whoever_has_a_key(daemon: DaemonProcess) -> None:
    assert daemon.ask(request("GET", "/v0/openapi.json")).status == 401
    for key in (KEY, "reader"):
        answer = daemon.ask(request("GET", "/v0/openapi.json", None, f"Authorization: Bearer {key}"))
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json == json.loads(json.dumps(document()))
    committed = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"
    assert json.loads(committed.read_text(encoding="utf-8")) == answer.json


def fill(path: str, *, queue: bool) -> str:
    return (
        path.replace("{topic}", "queue" if queue else "log")
        .replace("{seq}", "1")
        .replace("{name}", "place")
        .replace("{id}", "none")
        .replace("{router}", "copying")
    )


def test_the_examples_are_accepted(daemon: DaemonProcess) -> None:
    for method, path, operation in operations():
        content = operation.get("requestBody", {}).get("content", {})
        words = ("claim", "ack", "nack", "extend", "requeue")
        for kind, shown in content.items():
            example = shown["example"]
            body = example if isinstance(example, str) else json.dumps(example)
            if path == "/v0/diff" or path == "/v0/watch":
                body = body.replace('"a"', '"log"').replace('"b"', '"queue"')
            target = fill(path, queue=path.endswith(words)) + ("?stream=true" if path.endswith("/records") else "")
            answer = daemon.ask(request(method, target, body, AUTH, kind=kind))
            # A place that topics are moved through is not there.
            placeless = path.endswith(("/attach", "/detach")) and answer.status == 400
            assert placeless or answer.status < 300, (method, path, kind, answer)
            assert str(answer.status) in operation["responses"]
            assert b"warnings" not in answer.body


@pytest.fixture(scope="module")
def schema() -> Any:
    import schemathesis

    return schemathesis.openapi.from_dict(json.loads(json.dumps(document())))


def checks() -> list[Any]:
    """What every answer must be; `positive` and `negative` data are not told apart: bounds of numbers are prose."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks as of_openapi

    return [
        not_a_server_error,
        of_openapi.status_code_conformance,
        of_openapi.content_type_conformance,
        of_openapi.response_headers_conformance,
        of_openapi.response_schema_conformance,
    ]


def tame(case: Any, topic: str | None) -> Any:
    """The same request, often about what is there, and with short waits."""
    parameters = case.path_parameters or {}
    if topic is not None:
        parameters |= {name: value for name, value in {**THERE, "topic": topic}.items() if name in parameters}
    if isinstance(case.body, dict):
        for name in ("wait_ms", "max_wait_ms"):
            if isinstance(case.body.get(name), int):
                case.body[name] = min(case.body[name], 20)
        if topic is not None and isinstance(case.body.get("topics"), dict) and case.body["topics"]:
            case.body["topics"][topic] = next(iter(case.body["topics"].values()))
    return case


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("method", "path"), [(method, path) for method, path, _ in operations() if path not in STREAMS]
)
def test_requests_from_the_document_get_what_it_documents(
    daemon: DaemonProcess, schema: Any, method: str, path: str
) -> None:
    """Valid and invalid requests alike, with keys that may do everything, little, nothing, and without one."""
    import requests
    from schemathesis.generation import GenerationMode

    operation = schema[path][method]
    requested = requests.Session()
    answered = set()

    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        cases = operation.as_strategy(generation_mode=mode)

        @settings(
            max_examples=EXAMPLES_MAX,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(
            case=cases,
            topic=st.sampled_from([None, "log", "log", "queue", "queue"]),
            key=st.sampled_from(ASKING),
        )
        def look(case: Any, topic: str | None, key: str | None) -> None:
            tame(case, topic)
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            response = case.call(
                base_url=f"http://127.0.0.1:{daemon.port}", headers=headers, session=requested, timeout=20
            )
            answered.add(response.status_code)
            assert key not in (None, "wrong") or response.status_code not in (200, 201, 403) or is_open(path)
            case.validate_response(response, checks=checks())

        try:
            look()
        except Exception as error:
            if type(error).__name__ != "Unsatisfiable":
                raise
    assert answered, "nothing was asked"
    daemon_is_well(daemon)


def is_open(path: str) -> bool:
    """Whether a path is a probe, which needs no key."""
    return path.endswith(("health", "healthz", "ready", "readyz"))


def daemon_is_well(daemon: DaemonProcess) -> None:
    assert daemon.process.poll() is None, daemon.log
    assert "internal error" not in daemon.log, daemon.log
