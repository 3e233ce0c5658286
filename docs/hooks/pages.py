"""The hook of MkDocs: pages from outside docs/, links to sources, and the generated reference.

Markdown stays as it is read in a clone. When the site is built, pages outside docs/ join it, and a link to a source
file leads to its page of the API reference, or else to a page that shows the file.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from docs.hooks import api, command_line, configuration  # noqa: E402

MOVED = {  # pages that have another place in the site
    "README.md": "index.md",
    "docs/README.md": "documentation.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "configs/README.md": "configurations.md",
    "sweeps/README.md": "list-of-sweeps.md",
    "benchmarks/README.md": "benchmarks/index.md",
    "docs/tutorials/first_run.ipynb": "tutorials/first_run.md",
}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".md": "markdown", ".sbatch": "bash"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the generated pages into the navigation."""
    sections = {"CONFIGURATION": configuration.navigation(), "API": api.navigation(), "RESULTS": _results()}
    config.nav = _filled(config.nav, sections)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, the pages from outside docs/, and the sources and pictures that they link to."""
    try:
        generated = configuration.pages() | command_line.pages() | api.pages()
    except ValueError as error:
        raise PluginError(str(error)) from error
    waiting = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    for uri, text in generated.items():
        files.append(File.generated(config, uri, content=text))
    for place in [*MOVED, *_results()]:
        waiting[place] = notebook(ROOT / place) if place.endswith(".ipynb") else _read(ROOT / place)
        files.append(File.generated(config, uri_of(place), content=waiting[place]))
    while waiting:
        place, text = waiting.popitem()
        for target in _links(place, text):
            if uri_of(target) in files.src_uris or not (ROOT / target).exists():
                continue  # MkDocs reports what does not exist
            if Path(target).suffix in (".png", ".svg"):
                files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))
            else:
                waiting[target] = shown(target)
                source = File.generated(config, uri_of(target), content=waiting[target])
                source.inclusion = InclusionLevel.NOT_IN_NAV
                files.append(source)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of a page of the repository into links between pages of the site."""
    place = place_of(page.file.src_uri)
    if place is None:
        return markdown

    def led(link: re.Match[str]) -> str:
        uri = uri_of(_target(place, link.group()))
        return posixpath.relpath(uri, posixpath.dirname(page.file.src_uri)) if uri in files.src_uris else link.group()

    return LINK.sub(led, markdown)


def uri_of(place: str) -> str:
    """The place in the site of a file of the repository."""
    if place in MOVED:
        return MOVED[place]
    if place.startswith("docs/") and not place.startswith("docs/hooks/"):
        return place.removeprefix("docs/")
    if place.startswith("benchmarks/results/") and place.endswith((".md", ".png")):
        return place
    return api.page_of(place) or f"source/{place}.md"


def place_of(uri: str) -> str | None:
    """The place in the repository of a page of the site; None for a page whose links stay as they are."""
    if uri in MOVED.values():
        return next(place for place, moved in MOVED.items() if moved == uri)
    if uri.startswith("reference/"):
        return None
    if uri.startswith("source/"):
        shown = uri.removeprefix("source/").removesuffix(".md")
        return f"{shown}/" if (ROOT / shown).is_dir() else None
    return uri if (ROOT / uri).exists() else f"docs/{uri}"


def shown(place: str) -> str:
    """The page of a source file, or of a folder's files."""
    path = ROOT / place
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {place}\n\n"
    if path.is_dir():
        files = (file for file in sorted(path.iterdir()) if file.suffix in LANGUAGES or file.is_dir())
        return head + "\n".join(f"- [{file.name}]({file.name})" for file in files if not file.name.startswith("_"))
    return f"{head}~~~~~~ {LANGUAGES.get(path.suffix, 'text')}\n{_read(path)}\n~~~~~~\n"


def notebook(path: Path) -> str:
    """The page of a notebook: its text and its code."""
    cells = json.loads(_read(path))["cells"]
    texts = [("".join(cell["source"]), cell["cell_type"]) for cell in cells]
    parts = [f"```python\n{text}\n```" if kind == "code" else text for text, kind in texts]
    return "\n\n".join([parts[0], f'The notebook: <a href="{path.name}">{path.name}</a>.', *parts[1:]]) + "\n"


def _links(place: str, text: str) -> Iterator[str]:
    folder = f"{place}/" if (ROOT / place).is_dir() else place
    if (ROOT / place).is_dir() or place.endswith(".md"):
        yield from (_target(folder, link) for link in LINK.findall(text))


def _target(place: str, link: str) -> str:
    """The place in the repository that a link of a page leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(place), link))


def _results() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "benchmarks" / "results").glob("*.md"))


def _filled(nav: Any, sections: dict[str, list[Any]]) -> Any:
    """The navigation with every name of a generated section replaced by its pages."""
    if isinstance(nav, list):
        return [_filled(item, sections) for item in nav]
    if isinstance(nav, dict):
        return {title: _filled(item, sections) for title, item in nav.items()}
    return sections.get(nav, nav)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
