"""Each package knows only those below it, one package knows torch, and one folder knows medicine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "sql_agent"
MODULES = sorted(ROOT.rglob("*.py"))

# From the top down: a module imports from its own package and from rows below that of its package.
LAYERS = (
    ("cli",),
    ("training",),
    ("evaluation", "chat"),
    ("runs",),
    ("rollouts",),
    ("agent",),
    ("tasks",),
    ("questions",),
    ("database",),
    ("judge_eval",),
    ("reward",),
    ("config",),
    ("system",),
    ("errors",),
    ("schemas",),
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
# Modules at the root that only start the command line.
STARTERS = {"__init__", "__main__", "train_sql_agent", "sqlagent_test"}
HEAVY = {"torch", "verl", "vllm", "ray", "transformers", "peft"}
# It says what is installed, so it looks at everything.
LOOK_AT_EVERYTHING = {ROOT / "cli" / "check.py"}

MEDICINE = re.compile(r"drugs?_info|\bdrugs?\b|\bdiseases?\b|\bmedic\w*|医", re.IGNORECASE)
DISCLAIMER = re.compile(r"not medical\s+\"?\s*\"?advice|不构成医疗建议", re.IGNORECASE)
# What users read (cli, the start page), and the answers that judges are held against.
MAY_NAME_MEDICINE = (
    "tasks/medical/",
    "tasks/ehrsql/",
    "cli/",
    "judge_eval/labelled/",
    "judge_eval/wordings.toml",
)
# The first task by its name: in the table of built-in tasks, and as the default of the setting.
NAMES_THE_TASK = {"tasks/task.py": 1, "tasks/__init__.py": 1, "config/settings_schema.py": 1}


def package_of(path: Path) -> str:
    """The package or, at the root, the module that `path` belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that `path` imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def test_every_package_has_its_place_in_the_order() -> None:
    assert {package_of(path) for path in MODULES} <= RANK.keys() | STARTERS


def test_a_module_imports_only_from_its_own_package_and_those_below() -> None:
    wrong = []
    for path in MODULES:
        own = package_of(path)
        for line, name in imports(path):
            top, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if top == "sql_agent" and other != own and RANK.get(other, -1) <= RANK.get(own, -1):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert wrong == []


def test_torch_and_what_needs_it_is_imported_by_training_only() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in MODULES
        if package_of(path) != "training" and path not in LOOK_AT_EVERYTHING
        for line, name in imports(path)
        if name.partition(".")[0] in HEAVY
    ]
    assert wrong == []


def test_few_modules_stand_at_the_root() -> None:
    assert len(list(ROOT.glob("*.py"))) <= 6


def test_medicine_is_named_by_the_medical_task_only() -> None:
    named: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix not in {".py", ".txt", ".toml", ".yaml", ".jinja", ".j2"} or name.startswith(MAY_NAME_MEDICINE):
            continue
        text = DISCLAIMER.sub("", path.read_text(encoding="utf-8"))
        lines = [line.strip() for line in text.splitlines() if MEDICINE.search(line)]
        if len(lines) > NAMES_THE_TASK.get(name, 0):
            named[name] = lines
    assert named == {}
