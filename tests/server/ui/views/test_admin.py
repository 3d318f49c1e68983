"""Pages of administrators as they are sent: for them alone, with forms that do what they say."""

import contextlib
import html
import re
from collections.abc import Iterator

import httpx
import pytest

from modelkeeper.server.serve import serving
from modelkeeper.server.ui import visitors
from modelkeeper.settings import ServiceSettings
from tests.helpers.service import Team, team

HTML = {"accept": "text/html"}
HOSTILE = "'\"><script>alert(1)<|script>"


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("admin"), quota_models=9) as found:
        yield found


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests log in as often as they like."""
    monkeypatch.setattr(visitors, "LOGINS", 1e6)


@contextlib.contextmanager
def visit(keeper: Team, user: str, scope: str) -> Iterator[httpx.Client]:
    headers = {**HTML, "origin": keeper.url, "sec-fetch-site": "same-origin"}
    with httpx.Client(base_url=keeper.url, headers=headers) as line:
        assert line.post("/ui/login", data={"token": keeper.token(user, scope)}).status_code == 303
        yield line


@pytest.fixture
def admin(keeper: Team) -> Iterator[httpx.Client]:
    with visit(keeper, "root", "admin") as line:
        yield line


def sent(line: httpx.Client, place: str, status: int = 303, **form: str) -> httpx.Response:
    reply = line.post(f"/ui/admin/{place}", data=form)
    assert reply.status_code == status, reply.text
    return reply


def test_a_user_gets_quotas_a_token_and_a_project_and_goes(keeper: Team, admin: httpx.Client) -> None:
    place = sent(admin, "users", name=HOSTILE).headers["location"].removeprefix("/ui/admin/")
    identity = place.removeprefix("users/")
    sent(admin, f"{place}/quotas", bytes="2 GB", models="0", pins="", rate="2.5")
    user = next(user for user in keeper.accounts.users() if user.id == identity)
    assert (user.bytes, user.models, user.pins, user.rate) == (2 * 10**9, 0, None, 2.5)
    for wrong in ({"bytes": "huge"}, {"models": "1.5"}, {"rate": "0"}, {"pins": "-1"}, {"rate": "nan"}):
        assert "cannot be" in sent(admin, f"{place}/quotas", 422, **wrong).text
    project = sent(admin, "projects", name="vision <b>").headers["location"].removeprefix("/ui/admin/")
    sent(admin, f"{project}/join", user=HOSTILE)
    assert "account_conflict" not in sent(admin, "projects", 409, name="vision <b>").text
    made = sent(admin, "tokens", 200, user=identity, scope="read", days="1", note="<i>")
    token = re.findall(r'id="token">(mk_[^<]*)<', made.text)[0]
    assert made.headers["cache-control"] == "no-store"
    assert keeper.accounts.holder(token).projects  # type: ignore[union-attr]
    for shown in ("", f"/{place}", f"/{project}"):
        page = admin.get(f"/ui/admin{shown}")
        assert page.status_code == 200
        assert page.headers["cache-control"] == "no-store"
        assert "<script>alert" not in page.text
        assert "&lt;script&gt;alert(1)" in page.text
        assert token not in page.text
    key = token.split("_")[1]
    sent(admin, f"tokens/{key}/revoke", 403, sure="yes")
    assert keeper.accounts.holder(token) is not None
    sent(admin, f"tokens/{key}/revoke", sure=key)
    assert keeper.accounts.holder(token) is None
    sent(admin, f"{project}/leave", user=identity)
    sent(admin, f"{project}/remove", 403, sure="yes")
    sent(admin, f"{project}/remove", sure=project.removeprefix("projects/"))
    sent(admin, f"{place}/remove", 403, sure="yes")
    sent(admin, f"{place}/remove", sure=identity)
    assert admin.get(f"/ui/admin/{place}").status_code == 404
    events = keeper.coordinator.log(limit=20, action="administered")
    assert {event.user for event in events[:8]} == {"root"}


def test_others_are_told_what_it_needs(keeper: Team) -> None:
    eve = keeper.accounts.add_user("eve").id
    for scope in ("read", "write", "partner"):
        with visit(keeper, "eve", scope) as line:
            assert ">Admin<" not in line.get("/ui/models").text
            for place in ("", f"/users/{eve}", f"/projects/{eve}"):
                reply = line.get(f"/ui/admin{place}")
                assert reply.status_code == 403
                assert f"this needs the scope admin, yours is {scope}" in reply.text
            before = keeper.accounts.tokens(), keeper.accounts.users(), keeper.accounts.projects()
            key = before[0][-1].id
            sent(line, "users", 403, name="more")
            sent(line, "projects", 403, name="more")
            sent(line, "tokens", 403, user="eve", scope="read")
            sent(line, f"tokens/{key}/revoke", 403, sure=key)
            sent(line, f"users/{eve}/quotas", 403, models="100")
            sent(line, f"users/{eve}/remove", 403, sure=eve)
            assert (keeper.accounts.tokens(), keeper.accounts.users(), keeper.accounts.projects()) == before
    assert httpx.get(f"{keeper.url}/ui/admin", headers=HTML).status_code == 303


def test_lists_go_on_and_are_chosen_by_text(keeper: Team, admin: httpx.Client) -> None:
    for number in range(60):
        keeper.accounts.add_user(f"many {number:02}")
    first = admin.get("/ui/admin", params={"text": "many"}).text
    assert "many 49" in first
    assert "many 50" not in first
    onward = html.unescape(re.findall(r'href="(/ui/admin\?[^"]*)#users"', first)[0])
    second = admin.get(onward).text
    assert "many 50" in second
    assert "many 49" not in second


def test_another_sites_form_makes_no_token(keeper: Team, admin: httpx.Client) -> None:
    before = keeper.accounts.tokens()
    evil = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    reply = admin.post("/ui/admin/tokens", data={"user": "root", "scope": "admin"}, headers=evil)
    assert reply.status_code == 403
    assert keeper.accounts.tokens() == before


def test_where_there_are_no_users_there_is_no_such_page(keeper: Team) -> None:
    with serving(keeper.coordinator, ServiceSettings(port=0, auth=False)) as url:
        assert ">Admin<" not in httpx.get(f"{url}/ui/models", headers=HTML).text
        reply = httpx.get(f"{url}/ui/admin", headers=HTML)
        assert (reply.status_code, "this service has no users" in reply.text) == (403, True)
