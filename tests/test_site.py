"""The documentation site: is what the code offers in its reference pages, and does every link lead somewhere?

`make docs` builds all of it, with warnings as errors; here are the parts that pages are made of.
"""

import re
from pathlib import Path

import pytest

from docsite import check, drawings, repository
from docsite.reference import commands, errors, every_file, http, python, settings
from modelkeeper.cli import main
from modelkeeper.settings import ServiceSettings, Settings

ROOT = Path(__file__).parent.parent
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
MADE = {f"docs/reference/{name}.md" for name in ("commands", "files", "http", "settings")}
MADE |= {f"docs/reference/python/{name}" for name in python.pages()}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *PAGES])
def test_links_of_pages_lead_to_files(page: str) -> None:
    """Anchors are followed by `make docs`."""
    for link in repository.linked((ROOT / page).read_text()):
        path = repository.resolved(link, page)
        assert (ROOT / path).exists() or path in MADE, f"{page} links to {link}, which is not there"


def test_links_out_of_the_documents_are_moved_and_code_is_left_alone() -> None:
    page = "[pairs](../benchmarks/results/pairs.md#a) [demo](../examples/demo.py) [zoo](zoo.md)\n"
    fenced = "```\n[pairs](../benchmarks/results/pairs.md)\n```\n"
    results, examples = "repository/benchmarks/results", "repository/examples"
    expected = f"[pairs]({results}/pairs.md#a) [demo]({examples}/demo.py.md) [zoo](zoo.md)\n"
    assert repository.moved(page + fenced, "docs/transfer.md") == expected + fenced
    below = repository.moved("[ray](../../docs/integrations/ray.md)", "benchmarks/results/shards.md")
    assert below == "[ray](../../../integrations/ray.md)"
    assert (
        repository.outside(["docs/helps.md"])["repository/benchmarks/results/index.md"]
        == "benchmarks/results"
    )


def test_every_command_and_option_is_in_the_reference() -> None:
    page = commands.page()
    for words, command in commands.walk(main):
        assert f"# {' '.join(words)}\n" in page
        for option in command.params:
            assert all(f"{name}" in page for name in option.opts if name.startswith("-"))


def test_every_file_that_people_wrote_says_on_one_page_what_it_is_for() -> None:
    page = every_file.page()
    for path in (ROOT / "src").rglob("*"):
        if path.suffix in (".py", ".hpp", ".js") and not {"vendor", "__init__.py"} & set(path.parts):
            assert re.search(rf"^\| `{re.escape(path.name)}` \| \w.* \|$", page, re.MULTILINE), path


def test_every_setting_has_a_meaning_in_the_reference() -> None:
    page = settings.page()
    for struct in (Settings, ServiceSettings):
        assert settings.meanings(struct).keys() == set(struct.__struct_fields__)
        for name in struct.__struct_fields__:
            assert re.search(
                rf"^\| `{name}` \| `MODELKEEPER_{name.upper()}` \| .* \| \S.* \|$", page, re.MULTILINE
            )


def test_every_route_and_every_schema_is_in_the_reference() -> None:
    described = http.described()
    page = http.page(described)
    for path, methods in described["paths"].items():
        assert all(f"### {method.upper()} {path}\n" in page for method in methods)
    headings = [line.lstrip("# ") for line in page.splitlines() if line.startswith("### ")]
    assert len(headings) == len(set(headings))
    assert set(re.findall(r"\]\(#([\w-]+)\)", page)) <= {heading.lower() for heading in headings}


def test_every_export_is_in_the_reference() -> None:
    pages = python.pages()
    for module in (*python.PACKAGES, *python.integrations()):
        assert all(name in pages[f"{module}.md"] for name in python.exported(module) if name != "__version__")
        assert f"]({module}.md)" in pages["index.md"]


def test_the_page_of_errors_says_what_the_classes_say() -> None:
    page = errors.PLACE.read_text()
    assert errors.filled(page) == page, "errors have changed: python -m docsite.reference.errors"


def test_what_is_wrong_with_a_site_is_found(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "index.html").write_text(
        "<h1 id=top></h1><a href='below/page.html#there'></a><a href='#top'></a><a href='https://example.org/x'></a>"
        "<a href='below/page.html#gone'></a><a href='gone.html'></a><a href='http://example.org'></a>"
        "<script src='https://example.org/x.js'></script><img src='gone.png'>"
    )
    (tmp_path / "below" / "page.html").write_text(
        "<p id=there></p><a href='../index.html'></a><a href='..'></a>"
    )
    assert sorted(check.problems(tmp_path)) == [
        "index.html links to below/page.html#gone, but there is no such anchor",
        "index.html links to gone.html, which is not there",
        "index.html links to http://example.org: not https, or no host",
        "index.html loads gone.png, which is not there",
        "index.html loads https://example.org/x.js from another host",
    ]


def test_the_drawings_of_concepts_are_what_the_code_draws() -> None:
    for name, draw in drawings.DRAWINGS.items():
        assert (drawings.IMAGES / name).read_text() == draw().svg, f"{name}: make pictures"
