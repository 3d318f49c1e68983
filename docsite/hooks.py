"""What MkDocs calls while it builds the site: pages are added, and links moved to where files lie."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docsite import notebooks, repository
from docsite.reference import commands, every_file, http, python, settings
from docsite.repository import DOCS, ROOT

REFERENCE = {
    "reference/commands.md": commands.page,
    "reference/files.md": every_file.page,
    "reference/http.md": http.page,
    "reference/settings.md": settings.page,
}
BELOW = "repository/"
LINKED_BY_THE_NAVIGATION = ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/results")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is made from the code, and what pages link to outside of docs/."""
    made = {place: page() for place, page in REFERENCE.items()}
    made |= {f"reference/python/{name}": text for name, text in python.pages().items()}
    made |= {f"notebooks/{path.stem}.md": notebooks.page(path) for path in notebooks.paths()}
    pages = [f"{DOCS}/{file.src_uri}" for file in files.documentation_pages()]
    linked = repository.outside([*pages, *LINKED_BY_THE_NAVIGATION])
    linked |= {repository.home(path): path for path in LINKED_BY_THE_NAVIGATION}
    for place, path in linked.items():
        if place.endswith(".md"):
            made[place] = repository.as_page(path)
        else:
            files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Move the links of a page that lies in the repository."""
    place = page.file.src_uri
    path = place.removeprefix(BELOW) if place.startswith(BELOW) else f"{DOCS}/{place}"
    return repository.moved(markdown, path) if (ROOT / path).is_file() else markdown
