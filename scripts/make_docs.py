"""Write the generated parts of docs/: the reference of the study file, of the CLI, and the page of mistakes.

With --check, write nothing and fail if a page is not what it would write.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from stoker.cli import COMMANDS, ENVIRONMENT, overview
from stoker.cli.frame import parser
from stoker.spec.keys import SETTINGS, STAGE, SWEEP
from stoker.spec.load import load
from stoker.spec.problems import Source, StudyFileError
from stoker.spec.ranges import RANGES
from stoker.spec.reader import Field

DOCS = Path(__file__).resolve().parent.parent / "docs"
os.environ["COLUMNS"] = "101"  # the width of the help texts
BEGIN, END = "<!-- generated: make docs -->", "<!-- end of the generated part -->"


def main() -> int:
    stale = []
    for page, make in PAGES.items():
        path = DOCS / page
        old = path.read_text(encoding="utf-8")
        head, _, rest = old.partition(BEGIN)
        tail = rest.partition(END)[2]
        new = f"{head}{BEGIN}\n\n{make()}\n{END}{tail}"
        if new != old and "--check" in sys.argv:
            stale.append(page)
        elif new != old:
            path.write_text(new, encoding="utf-8")
    if stale:
        print(f"not up to date: {', '.join(stale)}; run `make docs`", file=sys.stderr)
    return 1 if stale else 0


def mistakes() -> str:
    return "\n".join(_mistake(path) for path in sorted((DOCS / "mistakes").glob("*.yaml")))


def _mistake(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    title = path.stem.partition("-")[2].replace("-", " ").capitalize()
    try:
        load(Source("params.yaml", text))
    except StudyFileError as error:
        return f"## {title}\n\n```yaml\n{text}```\n\n```text\n{error}\n```\n"
    raise SystemExit(f"{path} is a valid study file; it should show a mistake")


def commands() -> str:
    sections = [f"## stoker\n\n```text\n{overview()}```\n"]
    for name in COMMANDS:
        sections.append(f"## stoker {name}\n\n```text\n{parser(name).format_help()}```\n")
    rows = "\n".join(f"| `{name}` | {text} |" for name, text in ENVIRONMENT.items())
    sections.append(f"## Environment\n\n| variable | meaning |\n| --- | --- |\n{rows}\n")
    return "\n".join(sections)


def settings() -> str:
    kinds = "\n".join(
        f"| `{{{kind}: [{', '.join(range_.names)}]}}` | {range_.order.name.lower()} | {range_.doc} |"
        for kind, range_ in RANGES.items()
    )
    lists = (
        "| `{choice: [a, b, …]}` | draw | one of the values |\n"
        "| `{list: [a, b, …]}` | sequence | the values in turn, from the first again as needed |"
    )
    ranges = (
        f"### Ranges and sequences\n\n| written as | kind | values |\n| --- | --- | --- |\n{kinds}\n{lists}\n"
    )
    tables = [
        _table("Keys of the study", SETTINGS, ""),
        _table("Keys of a stage in its long form", STAGE, ""),
        _table("Keys of a sweep", SWEEP, ""),
        ranges,
        *(
            _table(f"Keys of `{name}`", fields, "")
            for name, fields in _groups(SETTINGS, "")
            if "engine" not in name
        ),
    ]
    return "\n".join(tables)


def engines() -> str:
    groups = _groups(SETTINGS, "")
    return "\n".join(_table(f"`{name}`", fields, "") for name, fields in groups if name.startswith("engine."))


def _groups(fields: tuple[Field, ...], prefix: str) -> list[tuple[str, tuple[Field, ...]]]:
    found = []
    for field in fields:
        inner = field.kind.fields
        if inner:
            found += [(prefix + field.name, inner), *_groups(inner, f"{prefix}{field.name}.")]
    return found


def _table(title: str, fields: tuple[Field, ...], note: str) -> str:
    rows = "\n".join(
        f"| `{field.name}`{' (required)' if field.required else ''} | {field.kind.expects} | "
        f"{field.default or '–'} | {field.doc}{' *Not yet acted on.*' if field.later else ''} |"
        for field in fields
    )
    return f"### {title}\n\n| key | is | default | meaning |\n| --- | --- | --- | --- |\n{rows}\n{note}"


PAGES = {
    "mistakes.md": mistakes,
    "cli.md": commands,
    "study-file.md": settings,
    "engine-settings.md": engines,
}

if __name__ == "__main__":
    sys.exit(main())
