"""What a release says of itself: one version, a dated changelog, whom to cite, what stays as it is."""

import datetime
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from modelkeeper.frontends.programs import program
from modelkeeper.graph import wire
from modelkeeper.sharing import bundle
from modelkeeper.signing import manifest
from modelkeeper.zoo.care import archive

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "stability.md").read_text()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def public() -> dict[str, list[str]]:
    """The public names of each public module, as docs/stability.md lists them."""
    listed = PAGE.partition("```\n")[2].partition("```")[0]
    found = re.findall(r"^(modelkeeper\S*)\n((?:    .*\n)+)", listed, re.M)
    return {module: names.split() for module, names in found}


@pytest.mark.parametrize("name", public())
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # fastai, if nobody has imported it yet
@pytest.mark.filterwarnings(
    "ignore:Using extra keyword arguments on .Field:DeprecationWarning"
)  # Ray, likewise
def test_a_public_module_exports_just_what_the_page_lists(name: str) -> None:
    """A change here is a change for users: say so in CHANGELOG.md."""
    module = importlib.import_module(name)
    assert sorted(module.__all__) == public()[name]
    assert all(hasattr(module, each) for each in module.__all__)


def test_what_everybody_uses_is_on_the_page() -> None:
    integrations = {
        path.parent.name for path in (ROOT / "src/modelkeeper/integrations").glob("*/__init__.py")
    }
    assert {"modelkeeper", "modelkeeper.errors", "modelkeeper.testing"} < public().keys()
    assert {f"modelkeeper.integrations.{name}" for name in integrations} < public().keys()


@pytest.mark.parametrize(
    ("what", "version"),
    [
        (wire.FORMAT, wire.VERSION),
        (program.FORMAT, program.VERSION),
        (manifest.FORMAT, manifest.VERSION),
        (bundle.FORMAT, bundle.VERSION),
        ("backups", archive.FORMAT),
    ],
)
def test_the_page_says_the_versions_of_formats(what: str, version: int) -> None:
    assert re.search(rf"^\|[^|]*{re.escape(what)}[^|]*\| {version} \|", PAGE, re.M), what


def test_there_is_one_version() -> None:
    """pyproject.toml says it; the package asks its metadata; what cannot read it is compared here."""
    version = PROJECT["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    image = (ROOT / "deploy/kubernetes/base/kustomization.yaml").read_text()
    assert citation["version"] == version
    assert f'newTag: "{version}"' in image
    assert str(citation["license"]) == PROJECT["license"]


def test_the_changelog_has_a_dated_section_for_each_version_newest_first() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.M)
    sections = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) \((\d{4}-\d\d-\d\d)\)", heading) for heading in headings]
    assert all(sections), headings
    found = [tuple(map(int, section.groups()[:3])) for section in sections if section]
    dates = [datetime.date.fromisoformat(section[4]) for section in sections if section]
    assert found == sorted(found, reverse=True)
    assert dates == sorted(dates, reverse=True)
    assert ".".join(map(str, found[0])) == PROJECT["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["date-released"] == dates[0]


@pytest.mark.parametrize(("file", "schema"), [("CITATION.cff", "vendor.citation-file-format")])
def test_files_for_machines_are_as_their_schemas_ask(file: str, schema: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(ROOT / file)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
