"""The page of the HTTP API: every route and every schema, as the service itself describes them (OpenAPI)."""

import re
from typing import Any

from docsite.reference.tables import code, table
from modelkeeper.coordinator.opening import open_local
from modelkeeper.server.app import Application
from modelkeeper.settings import ServiceSettings

Schema = dict[str, Any]
BEFORE = """# HTTP

What a coordinator answers, as `GET /openapi.json` describes it. [The guide](../service.md#the-api) says
what the routes are for; what an error's `code` means is in [trouble shooting](../troubleshooting.md). Every
route wants `Authorization: Bearer mk_…`, but for `/healthz`, `/readyz` and `/version`.
"""
HEADINGS = {
    "queries": "Queries",
    "models": "Models",
    "uploads": "Uploads",
    "history": "History",
    "accounts": "Accounts",
    "trust": "Trust",
    "operations": "Operations",
}


def described() -> Schema:
    """The OpenAPI description of a service."""
    coordinator = open_local(":memory:")
    try:
        return Application(coordinator, ServiceSettings()).routes.openapi()
    finally:
        coordinator.close()


def page(description: Schema | None = None) -> str:
    """The whole page."""
    description = described() if description is None else description
    schemas: dict[str, Schema] = {}
    groups: dict[str, list[str]] = {name: [] for name in HEADINGS}
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            groups.setdefault(route["tags"][0], []).append(_route(method, path, route, schemas))
    parts = [BEFORE]
    for name, routes in groups.items():
        parts += [f"## {HEADINGS.get(name, name.capitalize())}\n", *routes]
    parts.append("## Schemas\n")
    waiting = dict(schemas)
    done: dict[str, str] = {}
    while waiting:
        title, schema = waiting.popitem()
        found: dict[str, Schema] = {}
        done[title] = _schema(title, schema, found)
        waiting |= {name: each for name, each in found.items() if name not in done}
    return "\n".join([*parts, *(done[title] for title in sorted(done))])


def _route(method: str, path: str, route: Schema, schemas: dict[str, Schema]) -> str:
    asked = [
        (
            code(each["name"]),
            each["in"],
            kind(each["schema"], schemas),
            _default(each["schema"], each["required"]),
        )
        for each in route.get("parameters", ())
    ]
    lines = [f"### {method.upper()} {path}\n", f"{(route.get('description') or route['summary']).strip()}\n"]
    lines.append(table(("parameter", "in", "type", "default"), asked))
    for media, body in route.get("requestBody", {}).get("content", {}).items():
        lines.append(f"Body, `{media}`: {kind(body.get('schema', {}), schemas)}\n")
    for status, reply in route["responses"].items():
        if (
            status != "422"
        ):  # what FastAPI would say of a wrong parameter; the service says InvalidMeta instead
            lines += [
                f"{status}, `{media}`: {kind(body.get('schema', {}), schemas)}\n"
                for media, body in reply.get("content", {}).items()
            ]
    return "\n".join(line for line in lines if line)


def kind(schema: Schema, schemas: dict[str, Schema]) -> str:
    """What a value is, in Markdown; objects with a name are noted in `schemas`."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(each, schemas) for each in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "object" and "title" in schema and "properties" in schema:
        title = re.sub(r"\W", "", schema["title"])  # Listed[User] is ListedUser, which an anchor can be, too
        schemas[title] = schema
        return f"[{title}](#{title.lower()})"
    if schema.get("type") == "array":
        inside = schema.get("prefixItems")
        parts = (
            ", ".join(kind(each, schemas) for each in inside)
            if inside
            else kind(schema.get("items") or {}, schemas)
        )
        return f"list of {parts}" if not inside else f"({parts})"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {kind(schema['additionalProperties'], schemas)}"
    return str(schema.get("format") or schema.get("type") or "anything")


def _schema(title: str, schema: Schema, schemas: dict[str, Schema]) -> str:
    required = set(schema.get("required", ()))
    rows = [
        (code(name), kind(each, schemas), _default(each, name in required))
        for name, each in schema["properties"].items()
    ]
    said = schema.get("description", "").strip()
    return f"### {title}\n\n{said}\n\n{table(('field', 'type', 'default'), rows)}"


def _default(schema: Schema, required: bool) -> str:
    if required:
        return "required"
    value = schema.get("default")
    return (
        ""
        if value in (None, "", [], {})
        else code(str(value).lower() if isinstance(value, bool) else str(value))
    )
