"""The OpenAPI 3.1 document: the table of routes, the types that bodies are decoded with, and `openapi_routes`.

    ROUTES (what is asked of a caller and a body) + OPERATIONS (words, types) ─► paths
    msgspec's JSON Schema of the types ─► components

Pure, and made once, when it is first asked for. Two things are put right in the schemas: unknown fields are allowed,
although the strict types refuse them (routes then read again, and warn), and values that are kept as the bytes they
came in (`Raw`, `Any`) say what they must be.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, get_args, get_origin

import msgspec

from engine.errors import STATUS
from engine.names import GRAMMAR
from engine.version import VERSION
from topics_daemon.head import Content
from topics_daemon.keys import Scope, scope_names
from topics_daemon.openapi_answers import Error
from topics_daemon.openapi_routes import OPERATIONS, Operation
from topics_daemon.routes.table import NAMES, ROUTES, Body, Route

EVERYWHERE: Final = (400, 403, 413, 414, 421, 429, 431, 500, 503)
"""What any route may answer: malformed or foreign requests, too many, too large; bugs; a daemon that is not ready."""
ABOUT_STATUS: Final = {
    101: "the connection is a WebSocket from here on",
    200: "done",
    201: "created",
    207: "done for some",
    400: "the request is not as it must be",
    401: "this needs a known API key",
    403: "the key lacks a scope or is limited to other names, or a foreign page asks",
    404: "there is no such thing",
    406: "Accept does not allow what this answers",
    409: "what is there is in the way",
    411: "the length of the body is not said",
    413: "the body is too large",
    414: "the request line is too long",
    415: "the body is of a kind that this does not take",
    421: "the Host header names somebody else",
    422: "the topic is full, or the idempotency key was used for something else",
    429: "a limit is reached, or too much is going on",
    431: "the headers are too large or too many",
    500: "a bug; its id is in `detail.id`",
    503: "not now",
    507: "no space on the disk",
}
_RETRIED: Final = frozenset({429, 503, 507})
_REF: Final = "#/components/schemas/{name}"
_MATCH: Final = {
    "description": "a tag, or a beginning and `*`; in full: `tag`, how, what",
    "anyOf": [
        {"type": "string", "minLength": 1},
        {
            "type": "array",
            "prefixItems": [{"const": "tag"}, {"enum": ["Eq", "Glob"]}, {"type": "string"}],
            "minItems": 3,
            "maxItems": 3,
        },
    ],
}
_OPEN: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("RecordToWrite", "data"): {"description": "any JSON value; it comes back byte for byte"},
    ("RecordToWrite", "meta"): {"anyOf": [{"type": "object"}, {"type": "null"}]},
    ("Write", "config"): {"anyOf": [{"$ref": _REF.format(name="Changes")}, {"type": "null"}]},
    ("ManyWrites", "topics"): {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"$ref": _REF.format(name="Write")},
    },
}
"""What the values are that types keep as bytes, by the name of the schema and the member."""
_RENAMED: Final = {
    "StrictRecordIn": "RecordToWrite",
    "ManyIn": "ManyWrites",
    "ManyDiffIn": "ManyReads",
    "CursorIn": "Place",
    "StrictPlaceIn": "Beginning",
    "ExportIn": "Pin",
}
"""Types whose own names say too little, or what an answer is called."""


@cache
def document() -> dict[str, Any]:
    """The whole document."""
    types: list[Any] = [Error, *(_without_raw(op.takes) for op in OPERATIONS.values() if op.takes is not None)]
    types += [given for op in OPERATIONS.values() for given in op.gives.values() if not isinstance(given, str)]
    _, found = msgspec.json.schema_components(types, ref_template=_REF)
    schemas = {_schema_name(name): _opened(_schema_name(name), schema) for name, schema in sorted(found.items())}
    paths: dict[str, dict[str, Any]] = {}
    for pattern, methods in ROUTES.items():
        path = "/" + "/".join(pattern)
        for method, route in methods.items():
            operation = OPERATIONS[method, path]
            shown = path.replace(":topic", "{topic}").replace(":param", f"{{{operation.param}}}")
            paths.setdefault(shown, {})[method.lower()] = _operation(method, path, route, operation)
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "topics",
            "version": VERSION,
            "summary": "An append-only event log on one machine",
            "description": "Times are milliseconds since the Unix epoch, durations milliseconds. Fields may be added.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {str(status): _refusal(status) for status in sorted(set(STATUS.values()))},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "token": {"type": "apiKey", "in": "query", "name": "token"},
            },
        },
    }


@cache
def _without_raw(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The same type with any value where it keeps bytes: msgspec knows no schema for a default of those."""
    fields: list[tuple[str, Any, Any]] = []
    for field in msgspec.structs.fields(kind):
        inner = get_args(field.type)
        if field.type is msgspec.Raw:
            fields.append((field.name, Any, msgspec.NODEFAULT if field.required else msgspec.UNSET))
        elif get_origin(field.type) is list and isinstance(inner[0], type) and issubclass(inner[0], msgspec.Struct):
            fields.append((field.name, list[_without_raw(inner[0])], field.default))  # type: ignore[misc]  # made here
        else:
            fields.append((field.name, field.type, field.default))
    if all(kept[1] == field.type for kept, field in zip(fields, msgspec.structs.fields(kind), strict=True)):
        return kind
    return msgspec.defstruct(kind.__name__, fields, kw_only=True, namespace={"__doc__": kind.__doc__})


def _schema_name(name: str) -> str:
    """What a type is called in the document: `StrictWriteIn` is what one writes, a `Write`."""
    return _RENAMED.get(name) or name.removeprefix("Strict").removesuffix("In")


def _opened(name: str, schema: Any) -> dict[str, Any]:
    """A schema that lets unknown fields pass, refers to the names of the document, and says what open values are."""
    text = msgspec.json.encode(schema).decode()
    renamed = re.sub(r"#/components/schemas/(\w+)", lambda ref: _REF.format(name=_schema_name(ref[1])), text)
    opened: dict[str, Any] = msgspec.json.decode(renamed)
    opened.pop("title", None)
    if opened.get("description", "").startswith("The same"):
        del opened["description"]
    if opened.get("additionalProperties") is False:
        del opened["additionalProperties"]
    members = opened.get("properties", {})
    if "match" in members:
        members["match"] = {"anyOf": [_MATCH, {"type": "null"}]}
    for member in members:
        members[member] = _OPEN.get((name, member), members[member])
    return opened


def _ref(given: type[msgspec.Struct]) -> dict[str, Any]:
    return {"$ref": _REF.format(name=_schema_name(given.__name__))}


def _operation(method: str, path: str, route: Route, operation: Operation) -> dict[str, Any]:
    words = [word for word in re.split(r"[^a-z0-9]+", path.replace("/v0", "").lower()) if word]
    shown: dict[str, Any] = {
        "operationId": "_".join([method.lower(), *words]),
        "summary": operation.about,
        "tags": [words[0]],
        "responses": _responses(path, route, operation),
    }
    if route.scope is not Scope.NONE:
        shown["description"] = f"Scope: {scope_names(route.scope)}."
    parameters = _parameters(path, operation)
    if parameters:
        shown["parameters"] = parameters
    if operation.takes is not None or route.streams_body:
        shown["requestBody"] = _body(route, operation)
    if route.probe:
        shown["security"] = [{}, {"key": []}]
    elif route.stream:
        shown["security"] = [{"key": []}, {"token": []}]
    return shown


def _parameters(path: str, operation: Operation) -> list[dict[str, Any]]:
    found = []
    name_schema = {"type": "string", "pattern": GRAMMAR, "example": "orders"}
    if ":topic" in path:
        found.append({"name": "topic", "in": "path", "required": True, "schema": name_schema})
    if operation.param:
        schemas: dict[str, dict[str, Any]] = {"name": name_schema, "seq": {"type": "integer", "minimum": 0}}
        schema = schemas.get(operation.param, {"type": "string", "minLength": 1})
        found.append({"name": operation.param, "in": "path", "required": True, "schema": schema})
    found += [
        {"name": one.name, "in": "query", "required": one.required, "description": one.about, "schema": one.schema}
        for one in operation.query
    ]
    return found


def _body(route: Route, operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for kind in sorted(route.kinds):
        if kind is Content.JSON:
            assert operation.takes is not None
            content[NAMES[kind]] = {"schema": _ref(operation.takes), "example": operation.example}
        else:
            lines = '{"n":1}\n{"n":2}\n' if kind is Content.NDJSON else "one\ntwo\n"
            content[NAMES[kind]] = {"schema": {"type": "string"}, "example": lines}
    return {"required": route.body is Body.REQUIRED, "content": content}


def statuses(path: str, route: Route, operation: Operation) -> list[int]:
    """Every status that a route may answer with, beside what is well."""
    found = {*EVERYWHERE, *operation.refuses, 401}
    if ":" in path:
        found.add(404)
    if route.body is not Body.IGNORED:
        found.add(415)
    if route.body is Body.REQUIRED:
        found.add(411)
    return sorted(found)


def _responses(path: str, route: Route, operation: Operation) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for status, given in operation.gives.items():
        content: dict[str, Any]
        if isinstance(given, str):
            content = {given: {}}
            if path == "/v0/metrics":
                content["application/json"] = {}
        else:
            content = {"application/json": {"schema": _ref(given)}}
        if operation.lines:
            content["application/x-ndjson"] = {"schema": {"type": "string"}}
        shown[str(status)] = {"description": ABOUT_STATUS[status]}
        if status != 101:
            shown[str(status)]["content"] = content
    for status in statuses(path, route, operation):
        shown[str(status)] = {"$ref": f"#/components/responses/{status}"}
    return shown


def _refusal(status: int) -> dict[str, Any]:
    codes = sorted(code.value for code, its in STATUS.items() if its == status)
    shown: dict[str, Any] = {
        "description": f"{ABOUT_STATUS.get(status, 'this path takes other methods')} ({', '.join(codes)})",
        "content": {"application/json": {"schema": _ref(Error)}},
    }
    if status in _RETRIED:
        shown["headers"] = {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}}
    if status == 405:
        shown["headers"] = {"Allow": {"description": "the methods of this path", "schema": {"type": "string"}}}
    return shown


def document_bytes() -> bytes:
    """The document as it is served."""
    return msgspec.json.encode(document())
