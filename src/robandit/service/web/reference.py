"""The reference of all calls: a page for people, made from the OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

Schema = dict[str, Any]


def reference(document: dict[str, Any], style: str) -> str:
    """The whole page: every call with its body and its answers, then the types not shown so far."""
    schemas: dict[str, Schema] = document["components"]["schemas"]
    calls = [
        (method, path, {**call, "address": _address(path, [*methods.get("parameters", []), *_own(call)])})
        for path, methods in document["paths"].items()
        for method, call in methods.items()
        if method != "parameters"
    ]
    first, *rest = (call["responses"] for _, _, call in calls if "security" not in call)
    common = {k: v for k, v in first.items() if k >= "4" and all(other.get(k) == v for other in rest)}
    told: set[str] = set()
    sections = [_call(method, path, call, schemas, told, common) for method, path, call in calls]
    types = [_type(name, schema, answer=True) for name, schema in schemas.items() if name not in told]
    links = [
        f'<li><a href="#{_anchor(method, path)}">{_title(method, path)}</a> {escape(call["summary"])}</li>'
        for method, path, call in calls
    ]
    errors = [_answer(status, answer) for status, answer in common.items()]
    return _PAGE.format(
        style=style,
        version=escape(document["info"]["version"]),
        links="".join(links),
        calls="\n".join(sections),
        errors=_table(("Status", "", "Answer"), errors, "Errors of every call with a key"),
        types="\n".join(types),
    )


def _call(method: str, path: str, call: Schema, schemas: dict[str, Schema], told: set[str], common: Schema) -> str:
    """A call with its answers, except the common ones. The types of its body follow, unless they stand further up."""
    parts = [f'<h2 id="{_anchor(method, path)}">{_title(method, path)}</h2>']
    parts += [f"<p>{escape(call['summary'])}.</p>".replace("?.", "?"), _curl(method, call)]
    if "requestBody" in call:
        body = call["requestBody"]["content"]["application/json"]["schema"]
        parts.append(f"<p>The body: {_kind(body)}</p>")
        for name in dict.fromkeys(_names(body, schemas)):
            if name not in told:
                told.add(name)
                parts.append(_type(name, schemas[name]))
    rows = [_answer(status, answer) for status, answer in call["responses"].items() if status not in common]
    parts.append(_table(("Status", "", "Answer"), rows, f"Answers of {method.upper()} {path}"))
    return f'<section class="panel">{"".join(parts)}</section>'


def _answer(status: str, answer: Schema) -> str:
    """A row for an answer: its status, when it is given, and its type."""
    kind = _kind(next(iter(answer["content"].values()))["schema"])
    return _row(f"<code>{escape(status)}</code>", escape(answer["description"]), kind)


def _own(call: Schema) -> list[Schema]:
    """The parameters of a call alone."""
    found: list[Schema] = call.get("parameters", [])
    return found


def _address(path: str, parameters: list[Schema]) -> str:
    """The path of an example, with values for its parameters."""
    for one in parameters:
        path = path.replace(f"{{{one['name']}}}", str(one.get("example")))
        if one["in"] == "query" and one.get("required"):
            path += f"?{one['name']}={one['example']}"
    return path


def _curl(method: str, call: Schema) -> str:
    """The call as a command to try."""
    address, data = call["address"], ""
    how = "" if method in ("get", "post") else f" -X {method.upper()}"  # --json posts
    if not any(kind.startswith(("application/json", "text/", "application/x-")) for kind in _kinds(call)):
        how += " -O"  # which no window can show
    if "requestBody" in call:
        data = f" --json '{json.dumps(call['requestBody']['content']['application/json']['example'])}'"
    return f"<pre><code>{escape(f'curl -s{how} localhost:8000{address}{data}', quote=False)}</code></pre>"


def _kinds(call: Schema) -> Iterable[str]:
    """The media types of the answer."""
    return next(iter(call["responses"].values()))["content"]


def _type(name: str, schema: Schema, *, answer: bool = False) -> str:
    """A type and its fields. Types of answers have no defaults."""
    head = f'<h3 id="{escape(name)}">{escape(name)}</h3><p class="small">{_inline(schema.get("description", ""))}</p>'
    if "properties" not in schema:
        return f"{head}<p>{_kind(schema)}</p>"
    required, rows = schema.get("required", []), []
    for key, field in schema["properties"].items():
        default = [] if answer else ["required" if key in required else _default(field.get("default"))]
        rows.append(_row(f"<code>{escape(key)}</code>", _kind(field), *default, _about(field)))
    header = ("Field", "Type", "") if answer else ("Field", "Type", "", "")
    return head + _table(header, rows, f"Fields of {name}")


def _about(field: Schema) -> str:
    """The description of a field."""
    found = (one.get("description", "") for one in (field, *field.get("anyOf", [])))
    return _inline(next(filter(None, found), ""))


def _default(value: object) -> str:
    text = f"{value:,}".removesuffix(".0") if isinstance(value, int | float) else escape(str(value))
    return "optional" if value is None else f"default: {text}"


def _inline(text: str) -> str:
    """Text with its code marked as such."""
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(text))


def _row(*cells: str) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _kind(schema: Schema) -> str:
    """A type in words, with its bounds."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[-1])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"] if one.get("type") != "null")
    if "prefixItems" in schema:
        return f"[{', '.join(_kind(one) for one in schema['prefixItems'])}]"
    if "type" not in schema:
        return ", ".join(map(json.dumps, schema["enum"])) if "enum" in schema else "any value"
    inner = schema.get("items") or schema.get("additionalProperties")
    word = {"array": "list", "object": "object by name"}.get(schema["type"], schema["type"])
    return " ".join(filter(None, [word, f"of {_kind(inner)}" if inner else "", _bounds(schema)]))


def _bounds(schema: Schema) -> str:
    """The limits of a number, a text or a list."""
    limits = [
        f"{sign} {_number(schema[key])}"
        for key, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
        if key in schema
    ]
    for least, most, what in (("minLength", "maxLength", "characters"), ("minItems", "maxItems", "items")):
        if most in schema:
            limits.append(f"{schema.get(least, 0):,} to {schema[most]:,} {what}")
    return escape(f"({', '.join(limits)})") if limits else ""


def _number(value: float) -> str:
    return "2⁵³" if value == 2**53 else f"{value:,g}".replace("e+0", "e").replace("e-0", "e-").replace("-", "−")


def _names(schema: Schema, schemas: dict[str, Schema]) -> Iterator[str]:
    """The types that a schema refers to, and the types that those refer to."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        yield name
        for field in schemas[name].get("properties", {}).values():
            yield from _names(field, schemas)
    for inner in (*schema.get("anyOf", []), *([schema["items"]] if schema.get("items") else [])):
        yield from _names(inner, schemas)


def _table(header: tuple[str, ...], rows: Iterable[str], label: str) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in header)
    table = f"<table class='{header[0].lower()}'><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">{table}</div>'


def _title(method: str, path: str) -> str:
    return f"<code>{method.upper()} {escape(path)}</code>"


def _anchor(method: str, path: str) -> str:
    return f"{method}{path}".replace("/", "-").replace("{", "").replace("}", "")


_PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>robandit: the calls</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,"><style>{style}</style></head>
<body><header class="bar"><h1><a href="/">robandit</a></h1><span class="small">version {version}</span>
<a href="/">Dashboard</a></header>
<main class="stack text"><h2>The calls</h2>
<p>Bodies and answers are JSON. If you get no answer, send the request again with the same <code>decision_id</code>:
that is always safe. Where the service has keys, add <code>-H 'Authorization: Bearer KEY'</code>.</p>
<ul>{links}</ul>
{calls}
<section class="panel"><h2>Errors of any call that needs a key</h2>{errors}</section>
<section class="panel"><h2>Types of answers</h2>
{types}</section></main></body></html>
"""
