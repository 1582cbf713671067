"""What the page consists of: files of the package, complete, of this server only, and without a way to make markup."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Error

from millpond.serve.console_files import console_files
from millpond.serve.routes import VERBS
from tests.console.conftest import OpenPage, Served

FILES = console_files()
MODULES = sorted(path for path in FILES if path.endswith(".js"))


def text_of(path: str) -> str:
    return FILES[path].body.decode()


def test_the_page_names_only_files_that_are_there() -> None:
    assert set(re.findall(r'(?:src|href)="(/console/[^"]+)"', text_of("/"))) <= set(FILES)
    for module in MODULES:
        assert {f"/console/{name}" for name in re.findall(r'from "\./([^"]+)"', text_of(module))} <= set(FILES), module
    used = {f"/console/{name}" for module in MODULES for name in re.findall(r'from "\./([^"]+)"', text_of(module))}
    assert set(MODULES) - used == {"/console/main.js"}


def test_the_page_knows_the_words_that_end_a_route() -> None:
    (words,) = re.findall(r"const WORDS = new Set\(\[(.*?)\]\)", text_of("/console/api.js"), re.DOTALL)
    assert set(re.findall(r'"(\w+)"', words)) == VERBS


@pytest.mark.parametrize("path", sorted(FILES))
def test_nothing_comes_from_elsewhere_and_no_text_becomes_markup(path: str) -> None:
    text = text_of(path).replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//[a-z]+\.[a-z]|@import|url\(", text)
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser"
    assert not re.search(ways, text)
    if path == "/":
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)", text)


@pytest.mark.parametrize("path", sorted(FILES))
def test_a_file_goes_out_under_a_strict_policy_and_once(served: Served, path: str) -> None:
    answer = httpx.get(served.url + path)
    assert (answer.status_code, answer.content) == (200, FILES[path].body)
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["require-trusted-types-for"].replace("script", "self") == "'self'"
    assert not {"script-src", "style-src", "connect-src"} & set(policy)
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["object-src"] == policy["form-action"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    again = httpx.get(served.url + path, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_browser_itself_refuses_text_as_markup(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, expected="Trusted")
    with pytest.raises(Error, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<img src=x onerror=alert(1)>'")
    page.wait_for_function("window.violations.length > 0")
    assert page.evaluate("window.violations.splice(0)") == ["require-trusted-types-for"]


@pytest.mark.parametrize(
    "path", ["/console/", "/console/index.html", "/console/../pages.py", "/console/%2e%2e/pages.py"]
)
def test_no_other_path_leads_to_a_file(served: Served, path: str) -> None:
    answer = httpx.get(served.url + path)
    assert answer.status_code in (400, 404)
    assert answer.headers["content-type"].startswith("application/problem+json")
