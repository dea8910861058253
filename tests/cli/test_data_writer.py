"""A teacher model rewrites questions; what no longer asks the same, or gives the answer away, is not used."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest

from sql_agent.cli.command import exits_cleanly
from sql_agent.cli.data import main
from sql_agent.questions.question_files import load_questions
from sql_agent.schemas import Lang, Question
from sql_agent.tasks.medical.sample import build_database, load_facts
from tests.support.judge_server import Server, serving_as_teacher

pytestmark = pytest.mark.slow  # makes all questions of a sample, which takes seconds

PREFIX: dict[Lang, str] = {"en": "my aunt wants to know this, ok: ", "zh": "我姑姑让我来打听一下，"}
SPLITS = ("train", "val", "test")


def question_in(prompt: str) -> str:
    """The question that a prompt shows."""
    line = next(line for line in prompt.splitlines() if line.startswith(("question: ", "问题：")))
    return str(json.loads(line.removeprefix("question: ").removeprefix("问题：")))


def writes(prompt: str) -> bool:
    """Whether a prompt asks for a new text."""
    return "ways of writing, one a line:" in prompt or "写法，每行一种：" in prompt


def looks_up(prompt: str) -> bool:
    """Whether a prompt asks for a statement."""
    return "statements before, one JSON object a line:" in prompt or "之前的语句，每行一个 JSON 对象：" in prompt


class Teacher:
    """Puts `PREFIX` before each question, or what `words` makes of it, and writes the gold statement that answers it.

    Where the rows are not the reference, it says the reference.
    """

    def __init__(self, server: Server, questions: list[Question]) -> None:
        self.server = server
        self.known = {question.question: question for question in questions}
        self.words: Callable[[Question], str] = lambda question: PREFIX[question.lang] + question.question
        self.statements: dict[str, str] = {}  # by the text before
        self.several: tuple[str, ...] = ("",)  # what begins each of the new texts of a question
        self.stops_after: int | None = None  # replies
        self.refuses: str | None = None  # to write about the question with this text
        server.plays = self.plays

    def plays(self, prompt: str) -> str | int:
        if self.stops_after is not None and len(self.server.requests) > self.stops_after:
            return 401
        text = question_in(prompt)
        if writes(prompt):
            new = self.words(self.known[text])
            return json.dumps({"questions": [start + new for start in self.several]}, ensure_ascii=False)
        before = next(q for q in self.known.values() for start in self.several if start + self.words(q) == text)
        if looks_up(prompt):
            return json.dumps({"sql": self.statements.get(before.question, before.statements[-1])}, ensure_ascii=False)
        return json.dumps({"answer": before.full_answer}, ensure_ascii=False)

    @property
    def prompts(self) -> list[str]:
        return [str(request["messages"][0]["content"]) for request in self.server.requests]


def questions(db: Path, *arguments: object) -> int:
    shared = ["--db", db, "--per-type", 3]
    return exits_cleanly(main, ["questions", *map(str, (*shared, *arguments))])


# Three questions of a type may all first find nothing.
_SEARCHES, _PARTS = ("search", "two_conditions", "related"), ("part", "columns", "comparison")


class Case:
    """A database, the questions about it as the generator words them, and a teacher that knows them."""

    def __init__(self, made: Path, folder: Path, server: Server) -> None:
        self.db = made / "sample.db"
        self.out = folder / "out"
        self.plain = {split: load_questions(made / "plain" / f"{split}.parquet") for split in SPLITS}
        self.all = [question for questions in self.plain.values() for question in questions]
        self.teacher = Teacher(server, self.all)

    def run(self, *arguments: object) -> int:
        return questions(self.db, *arguments)

    def rewrite(self, *arguments: object) -> int:
        return self.run("--out", self.out, "--writer", "llm", *arguments)

    def made(self) -> dict[str, list[Question]]:
        return {split: load_questions(self.out / f"{split}.parquet") for split in SPLITS}

    def texts(self) -> dict[str, str]:
        return {question.id: question.question for questions in self.made().values() for question in questions}

    def one(self, *task_types: str, split: str = "train") -> Question:
        return next(q for q in self.plain[split] if q.task_type in task_types and len(q.statements) == 1)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("SQL_AGENT_JUDGE__CONCURRENCY", "4")
    with serving_as_teacher(monkeypatch) as server:
        yield server


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[Lang, Path]:
    """Folders with a sample database and questions about it in plain words."""
    folders: dict[Lang, Path] = {}
    for lang in get_args(Lang):
        folders[lang] = tmp_path_factory.mktemp(lang)
        build_database(load_facts(), lang, folders[lang] / "sample.db")
        assert questions(folders[lang] / "sample.db", "--out", folders[lang] / "plain") == 0
    return folders


@pytest.fixture
def case(made: dict[Lang, Path], server: Server, tmp_path: Path) -> Case:
    return Case(made["en"], tmp_path, server)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_good_rewrites_are_used_and_all_but_the_text_stays(
    made: dict[Lang, Path], server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], lang: Lang
) -> None:
    case = Case(made[lang], tmp_path, server)
    capsys.readouterr()
    assert case.rewrite() == 0
    expected = {
        split: [q.model_copy(update={"question": PREFIX[lang] + q.question}) for q in questions]
        for split, questions in case.plain.items()
    }
    assert case.made() == expected
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{len(case.all)} of {len(case.all)} new wordings are used" in printed
    asked = len(case.teacher.prompts)
    assert f"Cost: {asked} requests, {100 * asked} + {10 * asked} tokens" in printed
    assert sum(map(writes, case.teacher.prompts)) == len(case.all)


def test_the_teacher_writes_its_statement_from_the_text_and_the_tables_alone(case: Case) -> None:
    assert case.rewrite() == 0
    asked = case.one("part")  # cells of several columns may have a value that the prompt lists
    prompts = [p for p in case.teacher.prompts if question_in(p) == PREFIX["en"] + asked.question]
    statement, answer = prompts
    assert "drugs_info(" in statement and "mechanism_action" in statement
    for shown in (asked.statements[0], *(item.quote for item in asked.evidence)):
        assert shown not in statement
    assert json.dumps(asked.evidence[0].quote)[1:-1] in answer, "the cell that the statement found"
    plain = case.one(*_SEARCHES)
    assert len([p for p in case.teacher.prompts if question_in(p) == PREFIX["en"] + plain.question]) == 1


def test_a_rewrite_that_changes_the_drug_or_shows_the_answer_or_asks_otherwise_keeps_the_wording(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    drug, shown, other = case.one("lookup"), case.one(*_PARTS), case.one(*_SEARCHES)
    name = next(word for word in (drug.sql or "").split("'") if word.strip("%") in drug.question and len(word) > 3)

    def words(question: Question) -> str:
        if question == drug:
            return question.question.replace(name.strip("%"), "Nonsensium") + " please?"
        if question == shown:
            return f"{question.question} is it {question.answer.split('; ')[0]}?"
        return PREFIX["en"] + question.question

    case.teacher.words = words
    case.teacher.statements[other.question] = "SELECT COUNT(*) FROM disease"
    assert case.rewrite() == 0
    texts = case.texts()
    assert {q.id: texts[q.id] for q in (drug, shown, other)} == {q.id: q.question for q in (drug, shown, other)}
    assert sum(text.startswith(PREFIX["en"]) for text in texts.values()) == len(texts) - 3
    printed = " ".join(capsys.readouterr().out.split())
    assert "3 are unused: " in printed
    assert f"3 of {len(case.all)} questions keep their wording" in printed
    assert all(f"{reason} 1" in printed for reason in ("name", "answer shown", "answered otherwise"))
    cheap = [p for p in case.teacher.prompts if question_in(p) in {words(drug), words(shown)}]
    assert cheap == [], "what the cheap checks refuse is not asked about"


def test_an_error_or_a_hint_leads_to_a_second_statement(case: Case) -> None:
    failing, empty = case.one("lookup"), case.one(*_SEARCHES)
    case.teacher.statements = {
        failing.question: "SELECT nothing FROM drugs_info",
        empty.question: "SELECT med_name FROM drugs_info WHERE med_name = 'Ibuprofn'",
    }
    plays = case.teacher.plays

    def corrects(prompt: str) -> str | int:
        question = next((q for q in (failing, empty) if question_in(prompt) == PREFIX["en"] + q.question), None)
        if question is not None and '"sql": "SELECT' in prompt:
            return json.dumps({"sql": question.sql})
        return plays(prompt)

    case.teacher.server.plays = corrects
    assert case.rewrite() == 0
    again = {question_in(p): p for p in case.teacher.prompts if '"sql": "SELECT' in p}
    said = [again[PREFIX["en"] + question.question] for question in (failing, empty)]
    assert '"error": ' in said[0] and '"hint": ' in said[1]
    texts = case.texts()
    assert {texts[q.id] for q in (failing, empty)} == {PREFIX["en"] + q.question for q in (failing, empty)}


def test_further_wordings_are_further_training_questions(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    case.teacher.several = ("", "tell me. ", "ok so. ")
    assert case.rewrite("--wordings", 3) == 0
    made = case.made()
    assert [len(made[split]) for split in SPLITS] == [
        3 * len(case.plain["train"]), len(case.plain["val"]), len(case.plain["test"])
    ]  # fmt: skip
    first, second, third = made["train"][:3]
    assert second == first.model_copy(update={"id": f"{first.id}-2", "question": f"tell me. {first.question}"})
    assert third.id == f"{first.id}-3"
    prompt = next(p for p in case.teacher.prompts if writes(p))
    ways = prompt.partition("one a line:\n")[2].partition("\nkeep")[0].splitlines()
    assert len(set(ways)) == 3


def test_the_test_split_shares_no_wording_with_the_others(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    def words(question: Question) -> str:
        field = question.task_type == "lookup"
        name = (question.sql or "").split("'")[1].strip("%") if field else ""
        return f"so what about {name}?" if name and name in question.question else PREFIX["en"] + question.question

    case.teacher.words = words
    assert case.rewrite() == 0
    texts = {split: {q.question for q in questions} for split, questions in case.made().items()}
    assert any(text.startswith("so what about") for text in texts["train"])
    assert not any(text.startswith("so what about") for text in texts["test"])
    assert "shared wording" in capsys.readouterr().out
    half = len(case.plain["train"]) + len(case.plain["val"])
    order = [question_in(p) for p in case.teacher.prompts if writes(p)]
    assert set(order[:half]) == {q.question for split in ("train", "val") for q in case.plain[split]}


def test_a_stopped_command_says_why_and_goes_on_without_asking_anything_twice(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    case.teacher.stops_after = 21
    assert case.rewrite() == 2
    assert "the judge m failed" in capsys.readouterr().err
    assert not (case.out / "train.parquet").exists(), "no file that looks finished"
    log = case.out / "rewritten.jsonl"
    finished = {json.loads(line)["original"] for line in log.read_text().splitlines()}
    assert len(finished) >= 5, "two or three requests a question"
    with log.open("a") as file:
        file.write('{"id": "en-dru')  # as a killed process leaves it
    before = len(case.teacher.prompts)
    case.teacher.stops_after = None
    assert case.rewrite() == 0
    again = {question_in(prompt).removeprefix(PREFIX["en"]) for prompt in case.teacher.prompts[before:]}
    assert again == {question.question for question in case.all} - finished
    assert all(text.startswith(PREFIX["en"]) for text in case.texts().values())
    before = len(case.teacher.prompts)
    assert case.rewrite() == 0
    assert len(case.teacher.prompts) == before


def test_a_teacher_that_is_down_ends_the_command(
    case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEACHER_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setattr("sql_agent.reward.judges.endpoint.ATTEMPTS", 2)
    assert case.rewrite() == 2
    error = capsys.readouterr().err
    assert "error: the judge m failed" in error
    assert "TEACHER_BASE_URL" in error
    assert not (case.out / "train.parquet").exists()


def test_a_question_that_the_teacher_refuses_is_counted_and_asked_again_by_the_next_command(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = case.plain["train"][0]
    plays = case.teacher.plays

    def refuses_one(prompt: str) -> str | int | dict[str, object]:
        if question_in(prompt) == refused.question:
            return {"error": {"message": "rejected by the content management policy"}}
        return plays(prompt)

    case.teacher.server.plays = refuses_one
    assert case.rewrite() == 0
    assert case.texts()[refused.id] == refused.question
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 questions keep their wording because the teacher failed" in printed
    assert f"{refused.id}: the judge m refused" in printed
    before = len(case.teacher.prompts)
    case.teacher.server.plays = plays
    assert case.rewrite() == 0
    assert case.texts()[refused.id] == PREFIX["en"] + refused.question
    assert 2 <= len(case.teacher.prompts) - before <= 3


def test_a_share_is_rewritten_and_a_larger_one_asks_only_for_the_rest(case: Case) -> None:
    assert case.rewrite("--writer-share", 0.5) == 0
    half = {key for key, text in case.texts().items() if text.startswith(PREFIX["en"])}
    assert len(half) == sum(round(len(questions) / 2) for questions in case.plain.values())
    assert sum(map(writes, case.teacher.prompts)) == len(half)
    assert case.rewrite() == 0
    assert sum(map(writes, case.teacher.prompts)) == len(case.all)


def test_options_and_files_that_do_not_fit_together_end_with_code_2(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    assert case.run("--out", case.out, "--writer-share", 0.5) == 2
    assert "add --writer llm" in capsys.readouterr().err
    assert case.run("--out", case.out, "--wordings", 2) == 2
    assert "--wordings needs a writer" in capsys.readouterr().err
    assert case.rewrite("--writer-share", 0.2) == 0
    asked = len(case.teacher.prompts)
    assert case.rewrite("--seed", 1) == 2
    assert "belongs to other questions" in capsys.readouterr().err
    assert len(case.teacher.prompts) == asked
    (case.out / "rewritten.jsonl").write_text("{}\n")
    assert case.rewrite() == 2
    assert "rewritten.jsonl, line 1" in capsys.readouterr().err
