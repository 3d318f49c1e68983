"""Pages as they are sent: bound by their policy, escaped in every field, with words where something fails."""

import csv
import html
import io
import re
from collections.abc import Iterator

import httpx
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.server.serve import serving
from modelkeeper.server.ui import static_files
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.zoo.records import Record
from tests.helpers.dashboards import HOSTILE, fill_family, fill_hostile

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HTML = {"accept": "text/html"}


class Shown:
    """A service without users, and what its zoo holds."""

    def __init__(self, coordinator: LocalCoordinator, url: str) -> None:
        self.coordinator = coordinator
        self.hostile, self.family = fill_hostile(coordinator), fill_family(coordinator, 8)
        self.line = httpx.Client(base_url=url, headers=HTML)

    def addresses(self) -> list[str]:
        both = f"parent={self.hostile[0].id}&child={self.hostile[1].id}"
        return [
            "/ui/models?state=all",
            "/ui/models?text=%3Cscript%3E&task=%22%3E&order=-value",
            *(f"/ui/models/{record.id}" for record in (self.hostile[3], self.hostile[-1], self.family[-1])),
            f"/ui/diff?{both}",
            "/ui/diff?parent=%3Cscript%3Ealert(1)%3C/script%3E&child=%22%3E%3Cb%3E",
            "/ui/what-if?model=%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
            f"/ui/what-if?model={self.hostile[-1].id}&width=1.5&task=%22%3E%3Cscript%3E",
            f"/ui/what-if?model={self.hostile[-1].id}&width=%3Cscript%3E&blocks=%22%3E%3Cb%3E",
            f"/ui/models/{self.hostile[-1].id}?children=%22%3E%3Cb%3E&loans=%3Cscript%3E",
            "/ui/savings",
            "/ui/savings?by=user&days=365",
            "/ui/savings?by=project&user=%22%3E%3Cscript%3E&days=%22%3E&task=%27onfocus%3D",
            "/ui/log",
            "/ui/log?user=%22onfocus%3Dalert(1)%20autofocus%3D%22",
            "/ui/health",
            "/ui/health?range=%22%3E%3Cscript%3E",
        ]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    home = tmp_path_factory.mktemp("pages") / "zoo"
    local = LocalCoordinator(Settings(home=str(home), minimum_peers=10**6))
    with serving(local, ServiceSettings(port=0, auth=False)) as url:
        found = Shown(local, url)
        yield found
        found.line.close()
    local.close()


def test_every_reply_binds_the_browser(shown: Shown) -> None:
    missing = ["/ui/models/0123456789abcdef", "/ui/nothing", "/ui/models/x", "/ui/static/x/nothing.js"]
    for address in (*shown.addresses(), *missing, "/ui", f"/ui/static/{static_files.VERSION}/base.css"):
        reply = shown.line.get(address)
        assert reply.headers.get_list("content-security-policy") == [POLICY], address
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.status_code < 500


def test_nothing_in_a_zoo_is_markup(shown: Shown) -> None:
    """Scripts are our files alone, no element has a handler or a style, and names come through as text."""
    for address in shown.addresses():
        text = shown.line.get(address).text
        assert re.findall(r"<script(?! type=\"module\" src=\"/ui/static/)", text) == [], address
        tags = re.findall(r"<[a-zA-Z][^>]*>", text)
        assert not [tag for tag in tags if re.search(r"\s(on\w+|style)\s*=", re.sub(r'"[^"]*"', '""', tag))]
        assert not re.findall(
            r"<(?:img(?! src=\"/ui/static/)|svg(?! class=\"(?:lanes|bar)\")|iframe|object|b>|i>)", text
        )
        assert "49" not in re.findall(r"\{\{ 7 \* 7 \}\}|49(?=\{% raw)", text)
    listed = html.unescape(shown.line.get("/ui/models?state=all").text)
    for record in shown.hostile:
        assert record.name in listed


def test_models_leave_as_text_for_a_spreadsheet(shown: Shown) -> None:
    reply = shown.line.get("/ui/models.csv?order=name")
    assert reply.headers["content-disposition"] == 'attachment; filename="models.csv"'
    rows = list(csv.DictReader(io.StringIO(reply.text)))
    assert len(rows) == len(shown.hostile) + len(shown.family)
    assert {row["id"] for row in rows} == {record.id for record in [*shown.hostile, *shown.family]}
    cells = [cell for row in rows for cell in row.values()]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]
    assert any(cell.startswith("'=HYPERLINK") for cell in cells)


def test_static_files_are_kept_for_ever_under_their_digest(shown: Shown) -> None:
    address = static_files.address("base.css")
    reply = shown.line.get(address)
    assert "immutable" in reply.headers["cache-control"]
    assert reply.headers["content-type"].startswith("text/css")
    again = shown.line.get(address, headers={"if-none-match": reply.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert shown.line.get("/ui/static/older/base.css").headers["cache-control"] == "no-cache"
    assert shown.line.get("/ui/static/x/..%2f..%2fpages.py").status_code == 404


def test_what_fails_is_said_in_words(shown: Shown) -> None:
    reply = shown.line.get("/ui/models/0123456789abcdef")
    assert reply.status_code == 404
    assert "0123456789abcdef" in reply.text
    assert reply.headers["content-type"].startswith("text/html")
    for_script = shown.line.get("/ui/diff.json?parent=x&child=y", headers={"accept": "application/json"})
    assert for_script.status_code == 422
    assert "parent" in for_script.json()["message"]
    assert shown.line.get("/ui/diff.json?parent=0123456789abcdef&child=0123456789abcdef").status_code == 404


def test_the_snippet_is_python_that_finds_the_model(shown: Shown) -> None:
    for record in (shown.hostile[1], shown.family[0]):
        text = shown.line.get(f"/ui/models/{record.id}").text
        snippet = html.unescape(re.findall(r'<code id="snippet">(.*?)</code>', text, re.DOTALL)[0])
        said: dict[str, object] = {}
        lines = snippet.partition("meta = ")[2].partition("\nmodel,")[0]
        exec(f"said = {lines}", {}, said)
        assert said["said"] == {"data": record.data, "task": record.task, "parents": [record.id]}


def test_the_log_is_told_page_by_page(shown: Shown) -> None:
    text = shown.line.get("/ui/log?action=registered").text
    assert text.count('class="chip action-registered"') == len(shown.hostile) + len(shown.family)
    assert "Older" not in text
    numbers = [event.number for event in shown.coordinator.log(limit=1000)]
    middle = numbers[len(numbers) // 2]
    older = shown.line.get(f"/ui/log?before={middle}").text
    assert older.count('class="when"') == len([number for number in numbers if number < middle])


def test_health_says_what_would_go(shown: Shown) -> None:
    before = shown.coordinator.count()
    assert "Nothing would go." in shown.line.get("/ui/health?capacity=1TB").text
    text = shown.line.get("/ui/health?capacity=100 kB").text
    assert "First to go" in text
    assert "would go" in text
    assert "is no size" in shown.line.get("/ui/health?capacity=much").text
    assert shown.coordinator.count() == before


def test_hostile_names_are_really_there(shown: Shown) -> None:
    """The tests above would pass on a zoo without enemies."""
    names = {record.name for record in shown.hostile}
    assert "<script>alert(1)<|script>" in names
    assert len(names) == len(HOSTILE)
    record: Record = shown.hostile[0]
    assert any("<img" in word for word in (record.task, record.data, *record.tags))


def test_pages_over_postgresql(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    home = str(tmp_path_factory.mktemp("pages-postgresql"))
    local = LocalCoordinator(Settings(home=home, catalog=postgres_url, minimum_peers=10**6))
    with serving(local, ServiceSettings(port=0, auth=False)) as url:
        found = Shown(local, url)
        for address in found.addresses():
            assert found.line.get(address).status_code == 200, address
        both = f"parent={found.hostile[0].id}&child={found.hostile[1].id}"
        assert found.line.get(f"/ui/diff.json?{both}").json()["count"]
        chosen = "/ui/models?order=-value&least_value=0.5&most_bytes=10MB&state=all&tag=nas"
        assert found.line.get(chosen).status_code == 200
        found.line.close()
    local.close()
