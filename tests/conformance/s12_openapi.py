"""§12, the OpenAPI document."""

from __future__ import annotations

import json
from typing import Any

from tests.conformance.kit import CODES, Api, case, holds, same

PATHS = {
    "/v0/topics": {"get"},
    "/v0/topics/{topic}": {"get", "put", "delete", "post"},
    "/v0/topics/{topic}/diff": {"post"},
    "/v0/topics/{topic}/delete": {"post"},
    "/v0/topics/{topic}/records/{seq}": {"get"},
    "/v0/write": {"post"},
    "/v0/diff": {"post"},
    "/v0/watch": {"post"},
    "/v0/watch/{wid}": {"get"},
    "/v0/ws": {"get"},
    "/v0/topics/{topic}/claim": {"post"},
    "/v0/topics/{topic}/ack": {"post"},
    "/v0/topics/{topic}/nack": {"post"},
    "/v0/topics/{topic}/extend": {"post"},
    "/v0/topics/{topic}/requeue": {"post"},
    "/v0/topics/{topic}/leases": {"get"},
    "/v0/topics/{topic}/work": {"get"},
    "/v0/topics/{topic}/cursors": {"get"},
    "/v0/topics/{topic}/cursors/{name}": {"get", "put", "delete"},
    "/v0/health": {"get"},
    "/v0/ready": {"get"},
    "/v0/metrics": {"get"},
    "/v0/openapi.json": {"get"},
    "/v0/admin/checkpoint": {"post"},
    "/v0/admin/exports": {"get", "post"},
    "/v0/admin/exports/{id}": {"delete"},
    "/v0/admin/store": {"get"},
}


def _document(api: Api) -> Any:
    return api.call("GET", "/v0/openapi.json", status=200).json


@case("12 openapi")
def it_is_openapi_3_1(api: Api) -> None:
    """`GET /v0/openapi.json`: OpenAPI 3.1."""
    shown = _document(api)
    holds(shown["openapi"].startswith("3.1."), f"openapi {shown['openapi']}")
    holds(bool(shown["info"]["title"] and shown["info"]["version"]), "info without title or version")


@case("12 openapi")
def every_route_is_in_it(api: Api) -> None:
    """OpenAPI 3.1 of all routes."""
    paths = _document(api)["paths"]
    for path, methods in PATHS.items():
        holds(path in paths and methods <= set(paths[path]), f"{path} {sorted(methods)} is missing")


@case("12 openapi")
def every_answer_is_documented(api: Api) -> None:
    """Every answer from 400 up has one body, whose statuses are those of §1."""
    shown = _document(api)
    for path, methods in shown["paths"].items():
        for method, operation in methods.items():
            statuses = {int(status) for status in operation["responses"]}
            holds(any(status < 400 for status in statuses), f"{method} {path} documents no success")
            holds({status for status in statuses if status >= 400} <= set(CODES), f"{method} {path}: {statuses}")
            holds({400, 401, 500, 503} <= statuses, f"{method} {path} lacks what any route may answer")


@case("12 openapi")
def its_references_lead_somewhere(api: Api) -> None:
    """A document that tools can read."""
    shown = _document(api)
    text = json.dumps(shown)
    for kind, parts in shown["components"].items():
        for name in parts:
            text = text.replace(f'"#/components/{kind}/{name}"', "")
    holds('"#/components/' not in text, "a reference that leads nowhere")


@case("12 openapi")
def its_examples_are_taken(api: Api) -> None:
    """Generated from the types that the server validates with: a body that it shows is accepted."""
    operation = _document(api)["paths"]["/v0/topics/{topic}"]["post"]
    topic = api.topic()
    for media, content in operation["requestBody"]["content"].items():
        example = content["example"]
        body = example.encode() if isinstance(example, str) else json.dumps(example).encode()
        api.call("POST", f"/v0/topics/{topic}", body, media=media, status=(200, 201))
    same(api.state(topic)["count"] >= 3, True, "records of three examples")
