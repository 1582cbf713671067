"""The routes for people: one page, made from the OpenAPI document, that needs nothing but itself."""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any

from millpond.serve.openapi import document

STYLE = """\
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { margin-bottom: 0; } h2 { margin: 2.5rem 0 .25rem; font-size: 1.05rem; }
h2 code { font-size: 1rem; } .method { display: inline-block; min-width: 4.5rem; font-weight: 700; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-top: 1px solid var(--line); }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
pre { background: var(--soft); padding: .75rem; overflow-x: auto; border-radius: .4rem; }
a { color: inherit; } nav li { margin: .15rem 0; list-style: none; } nav ul { padding: 0; }
"""


@cache
def docs_page() -> bytes:
    """HTML."""
    found = document()
    operations = [
        (method.upper(), path, operation)
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
    ]
    listed = "".join(
        f'<li><a href="#{operation["operationId"]}">{_head(method, path)}</a> {escape(operation["summary"])}</li>'
        for method, path, operation in operations
    )
    body = "".join(_section(*each) for each in operations)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Millpond: REST</title><link rel="stylesheet" href="/docs.css"></head><body>
<header><h1>Millpond: REST</h1><p>{escape(found["info"]["summary"])}
For machines: <a href="/openapi.json">openapi.json</a>. The <a href="/">console</a>.</p></header>
<nav aria-label="Routes"><ul>{listed}</ul></nav><main>{body}</main></body></html>
""".encode()


def _section(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code></td><td>{escape(each['in'])}</td>"
        f"<td>{escape(_kind(each['schema']))}</td><td>{escape(each.get('description', ''))}</td></tr>"
        for each in operation["parameters"]
    )
    takes = operation.get("requestBody", {}).get("content", {})
    answers = "".join(
        f"<tr><td>{status}</td><td>{escape(each['description'])}</td>"
        f"<td>{'<br>'.join(f'<code>{escape(media)}</code>' for media in each.get('content', {}))}</td></tr>"
        for status, each in operation["responses"].items()
    )
    parameters = (
        f"<table><tr><th>parameter</th><th>in</th><th>type</th><th>meaning</th></tr>{rows}</table>" if rows else ""
    )
    body = f"<p>Body: {', '.join(f'<code>{escape(media)}</code>' for media in takes)}</p>" if takes else ""
    return (
        f'<section id="{operation["operationId"]}"><h2>{_head(method, path)}</h2>'
        f"<p>{escape(operation['summary'])} {escape(operation.get('description', ''))}</p>{parameters}{body}"
        f"<table><tr><th>answer</th><th>meaning</th><th>as</th></tr>{answers}</table></section>"
    )


def _head(method: str, path: str) -> str:
    return f'<code><span class="method">{method}</span> {escape(path)}</code>'


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    return str(schema.get("type", ""))
