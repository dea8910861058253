"""The form in which users keep their questions: loaded, checked, graded and trained on as it is."""

from __future__ import annotations

import asyncio
import lzma
from itertools import permutations
from pathlib import Path

import pytest

from sql_agent.cli.data import main
from sql_agent.config.settings import load_settings
from sql_agent.database.provenance import evidence_read
from sql_agent.questions.derived_evidence import with_derived_evidence
from sql_agent.questions.question_files import load_questions
from sql_agent.reward import JudgeCase
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.schemas import QueryCall, Question
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.processes import finish, lines, start

SHARED = Path(__file__).parents[3] / "shared/data"
FILE = SHARED / "qa_example.jsonl"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="needs the real data beside the checkout")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("real") / "medical_zh.db"
    path.write_bytes(lzma.decompress((SHARED / "medical_zh.db.xz").read_bytes()))
    return path


def test_the_file_loads_and_the_check_finds_nothing_wrong(real: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [len(question.statements) for question in load_questions(FILE)] == [1] * 6
    assert main(["check", str(FILE), "--db", str(real)]) == 0
    assert "6 of 6" in capsys.readouterr().out


def test_evidence_to_the_letter_scores_1_and_that_of_another_question_0(real: Path) -> None:
    judge = FactsJudge(TASK.words)
    with TASK.databases(load_settings([f"database.path={real}"])) as databases, databases.of(None) as database:
        questions = with_derived_evidence(load_questions(FILE), databases, TASK.words)

        def score(question: Question, source: Question) -> float:
            calls = [QueryCall(sql=sql, answer=database.query(sql), seconds=0.0) for sql in question.statements]
            case = JudgeCase(
                question=question,
                answer="\n".join(item.quote for item in source.evidence),
                calls=tuple(calls),
                evidence_read=evidence_read(database, calls, question.evidence),
            )
            return asyncio.run(judge.grade(case)).score

        assert [score(question, question) for question in questions] == [1.0] * 6
        assert [score(question, other) for question, other in permutations(questions, 2)] == [0.0] * 30


@pytest.mark.slow
def test_the_file_trains_a_step(real: Path, tmp_path: Path, tiny_model_folder: Path) -> None:
    rows = FILE.read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "train.jsonl").write_text("".join(rows[:4]), encoding="utf-8")
    (tmp_path / "val.jsonl").write_text("".join(rows[4:]), encoding="utf-8")
    process = start(
        [
            "--ci-fast", f"--model={tiny_model_folder}", f"--train-file={tmp_path / 'train.jsonl'}",
            f"--val-file={tmp_path / 'val.jsonl'}", f"database.path={real}", "judge.name=facts", "run_name=r",
            f"runs_dir={tmp_path / 'runs'}", f"local.cache_dir={tmp_path / 'cache'}", "--n-runners=1",
            "sft.steps=1", "sft.batch=2", "agent.max_tokens=8", "train.questions_per_step=2", "train.group_size=2",
            "local.max_context=8192",
        ]
    )  # fmt: skip
    output = finish(process)
    assert process.returncode == 0, output
    assert "6 of 6 gold queries return rows; the references earn 1.00 of 1.0" in output
    (step,) = lines(tmp_path / "runs" / "r" / "metrics.jsonl")
    assert (step["rollouts/kept"], step["judge/failed"]) == (4, 0)
    rollouts = lines(tmp_path / "runs" / "r" / "rollouts.jsonl")
    asked = {r["record"]["question"]["id"]: r["record"]["question"]["evidence"] for r in rollouts}
    assert asked["a1f0c6de-0006"][0]["quote"] == "酒石酸伐尼克兰片", "found through the gold SQL"
