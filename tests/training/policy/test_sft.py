"""Supervised fine-tuning, on a model so small that it only shows the mechanics."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from sql_agent.agent.demonstrations import demonstrate
from sql_agent.agent.tools import tool_schema
from sql_agent.config.settings import load_settings
from sql_agent.config.settings_schema import SftSettings
from sql_agent.database import Database, open_database
from sql_agent.errors import DataError, TrainingError
from sql_agent.questions.question_files import load_questions
from sql_agent.rollouts.trajectory import TokenSequence
from sql_agent.schemas import Question
from sql_agent.tasks.medical.medical_task import TASK
from sql_agent.tasks.medical.tables import SCHEMA
from sql_agent.training.policy import attention
from sql_agent.training.policy.model import Policy, load_policy
from sql_agent.training.policy.sft import (
    Compute,
    _choose,
    _fine_tune,
    _micro_batches,
    _prepare_for_training,
    _within,
    example,
    fine_tuned_model,
    rewarded_answers,
)
from sql_agent.training.serving.chat import ChatEncoder
from tests.support.small_database import make_database
from tests.support.users_questions import PROSE, written

QUESTIONS = [
    Question(
        id=f"q{number}",
        question="Which form" + " exactly" * number + "?",
        answer="capsule",
        sql=f"SELECT form FROM drugs_info WHERE med_name = 'Drug {number}'",
    )
    for number in range(1, 7)
]


class FineTuning:
    """Fine-tunings of one model in one cache; `losses` are those of all its steps."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.steps = 3
        self.model = model
        self.folder = folder
        self.database = make_database(folder / "medical.db")
        self.losses: list[float] = []

    def __call__(
        self,
        *,
        cache: str = "cache",
        micro_batch: int = 4,
        lora_rank: int = 0,
    ) -> str:
        settings = load_settings(
            [f"sft.steps={self.steps}", "sft.batch=4", "sft.lr=1e-3", "judge.name=facts",
             f"train.micro_batch={micro_batch}", f"model={self.model}", f"local.cache_dir={self.folder / cache}"]
        )  # fmt: skip
        with TASK.databases(settings, self.database) as databases:
            return fine_tuned_model(
                settings, QUESTIONS, TASK, databases, compute=Compute(lora_rank=lora_rank), progress=self.progress,
                say=self.say,
            )  # fmt: skip

    def say(self, line: str) -> None:
        print(line)

    def progress(self, step: int, steps: int, loss: float) -> None:
        self.losses.append(loss)


@pytest.fixture
def fine_tune(tiny_model_folder: Path, tmp_path: Path) -> FineTuning:
    return FineTuning(tiny_model_folder, tmp_path)


@pytest.mark.slow
def test_smaller_portions_learn_the_same(fine_tune: FineTuning) -> None:
    """So that a smaller GPU needs only a smaller train.micro_batch."""
    folders = fine_tune(cache="a", micro_batch=4), fine_tune(cache="b", micro_batch=3)
    whole, parts = (load_policy(folder, cache_dir=fine_tune.folder) for folder in folders)
    assert fine_tune.losses[:3] == pytest.approx(fine_tune.losses[3:], rel=1e-4)
    assert fine_tune.losses[2] < fine_tune.losses[0]
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-3)


@pytest.mark.slow
def test_a_run_waits_for_the_same_fine_tuning_of_another_run_and_uses_its_result(fine_tune: FineTuning) -> None:
    made = Path(fine_tune())
    away = made.rename(made.with_name("not yet"))
    with ThreadPoolExecutor() as threads:
        with FileLock(f"{made}.lock"):  # as the other run holds it
            waiting = threads.submit(fine_tune)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=1)
            away.rename(made)
        assert waiting.result() == str(made)
    assert len(fine_tune.losses) == 3, "only the first one took its three steps"


def test_an_exception_of_progress_stops_the_fine_tuning_and_nothing_is_cached(
    fine_tune: FineTuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fine_tune, "progress", stop)
    with pytest.raises(KeyboardInterrupt):
        fine_tune()
    assert not list((fine_tune.folder / "cache").glob("sft-*/*.safetensors"))


def test_an_interrupt_while_demonstrations_are_written_waits_for_no_other(
    fine_tune: FineTuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []

    def stop(line: str) -> None:
        lines.append(line)
        raise KeyboardInterrupt

    fine_tune.steps = 5000
    monkeypatch.setattr(fine_tune, "say", stop)
    with pytest.raises(KeyboardInterrupt):
        fine_tune()
    assert lines == ["500 of 20000 demonstrations written"]


def test_a_gradient_that_is_not_finite_ends_the_run_before_anything_is_cached(fine_tune: FineTuning) -> None:
    policy = load_policy(str(fine_tune.model), cache_dir=fine_tune.folder)
    with torch.no_grad():
        next(policy.model.parameters())[:] = float("nan")
    broken = fine_tune.folder / "broken"
    policy.save(broken)
    fine_tune.model = broken
    with pytest.raises(TrainingError, match="step 1 of 3"):
        fine_tune()
    assert not list((fine_tune.folder / "cache").glob("sft-*/*.safetensors"))


@pytest.mark.slow
def test_with_a_lora_rank_only_adapters_are_trained_and_merged_into_the_weights(fine_tune: FineTuning) -> None:
    tuned = fine_tune(lora_rank=2)
    assert fine_tune.losses[-1] < fine_tune.losses[0]
    before, saved = (load_policy(p, cache_dir=fine_tune.folder) for p in (str(fine_tune.model), tuned))
    learned = dict(saved.model.named_parameters())
    assert learned.keys() == dict(before.model.named_parameters()).keys(), "an ordinary Hugging Face folder"
    for name, weight in before.model.named_parameters():
        change = learned[name].detach() - weight.detach()
        if "_proj" in name:
            assert 1 <= torch.linalg.matrix_rank(change, atol=1e-6) <= 2, name
        else:
            assert not change.any(), name
    assert fine_tune(lora_rank=0) != tuned, "another fine-tuning"


def demonstrated(question: Question, policy: Policy, database: Database) -> tuple[str, str]:
    """Return the text of the demonstration of `question`, and of the tokens that are learned from it."""
    demonstration = demonstrate(0, question, TASK, database, load_settings())
    encoder = ChatEncoder(policy.tokenizer, policy.end_id)
    (shown,) = example(demonstration, tool_schema(TASK, database), encoder)
    # A hint may show the statement; the model's call of it comes later.
    assert f'"sql": "{question.statements[-1]}"' not in policy.tokenizer.decode(shown.prompt_ids)
    trained = [token for token, mask in zip(shown.response_ids, shown.response_mask, strict=True) if mask]
    return policy.tokenizer.decode([*shown.prompt_ids, *shown.response_ids]), policy.tokenizer.decode(trained)


def test_each_of_several_statements_is_demonstrated_as_a_call_with_its_rows(policy: Policy, tmp_path: Path) -> None:
    statements = [f"SELECT form FROM drugs_info WHERE id = {row}" for row in (1, 2)]
    question = Question(id="1", question="Which forms?", answer="capsule; syrup", sql=";".join(statements))
    with open_database(make_database(tmp_path / "medical.db"), SCHEMA) as database:
        shown, _ = demonstrated(question, policy, database)
    parts = [statements[0], '[["capsule"]]', statements[1], '[["syrup"]]', "capsule; syrup"]
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)


def test_a_statement_that_missed_before_the_right_one_is_read_but_not_learned(policy: Policy, tmp_path: Path) -> None:
    looked_up = "SELECT form FROM drugs_info WHERE med_name = '{}'"
    miss, hit, other_miss = map(looked_up.format, ("Drag 4", "Drug 4", "Drog 9"))
    found = Question(id="1", question="Which form has Drag 4?", answer="tablet", sql=f"{miss}; {hit}")
    refused = Question(
        id="2", question="And Drag 4?", answer="The database does not hold this information.",
        task_type="unanswerable", sql=f"{miss}; {other_miss}",
    )  # fmt: skip
    with open_database(make_database(tmp_path / "medical.db"), SCHEMA) as database:
        shown, learned = demonstrated(found, policy, database)
        assert miss in shown
        assert hit in learned and "tablet" in learned and miss not in learned
        _, learned = demonstrated(refused, policy, database)
    assert miss in learned and other_miss in learned


@pytest.mark.parametrize("steps", [2, 6, 12])
def test_each_type_is_learned_from_the_first_steps_on(steps: int) -> None:
    types = ["field"] * 64 + ["count"] * 16 + ["rare"] * 4
    questions = [Question(id=str(n), question="?", answer="1", task_type=name) for n, name in enumerate(types)]
    chosen = _choose(questions, SftSettings(steps=steps, batch=14), seed=0)
    shown = [Counter(q.task_type for q in chosen[start : start + 14]) for start in range(0, len(chosen), 14)]
    if steps == 2:  # fewer than questions: by the square root of a type's number
        assert shown == [{"field": 8, "count": 4, "rare": 2}] * 2
    else:  # by the number, in passes over all questions
        assert all(9 <= each["field"] <= 12 for each in shown)
        assert {question.id for question in chosen[:84]} == {question.id for question in questions}
    assert _choose(questions, SftSettings(steps=steps, batch=14), seed=1) != chosen


def test_a_short_start_reads_each_column_in_turn_and_a_long_one_has_every_type() -> None:
    reads = ["form", "dosage", "storage", "form, dosage", "*"]
    statements = [f"SELECT {column} FROM drugs_info WHERE med_name = 'A'" for column in reads]
    questions = [
        Question(id=f"{n} {name}", question="?", answer="1", sql=f"SELECT 1; {sql}", task_type=name)
        for name in ("lookup", "count")
        for n in range(4)
        for sql in statements
    ]
    *plain, _two, _all = statements
    short = _choose(questions, SftSettings(steps=4, batch=6), seed=0)
    for three in (short[start : start + 3] for start in range(0, 24, 3)):
        assert {question.statements[-1] for question in three} == set(plain)
        assert {question.task_type for question in three} == {"lookup"}
    assert len({question.statements[-1] for question in short[1::3]}) > 1, "each round has its own order"
    long = _choose(questions, SftSettings(steps=64), seed=0)
    assert {question.task_type for question in long} == {"lookup", "count"}


@pytest.mark.parametrize(("judge", "answer"), [("facts", "Drug 3; rest"), ("llm", PROSE["ground_truth"])])
def test_prose_is_demonstrated_as_the_judge_pays_for_it(judge: str, answer: str, tmp_path: Path) -> None:
    (question,) = load_questions(written(tmp_path / "q.jsonl", PROSE))
    with TASK.databases(load_settings(), make_database(tmp_path / "medical.db")) as databases:
        shown = rewarded_answers(load_settings([f"judge.name={judge}"]), TASK, databases)(question)
    assert shown.answer == answer


def test_demonstrations_that_no_rollout_could_be_as_long_as_are_left_out_and_counted() -> None:
    short, long = (TokenSequence((1,), tuple(range(n)), (1,) * n) for n in (9, 99))
    said: list[str] = []
    assert _within([[short], [long]], 50, said.append) == [[short]]
    assert said == ["1 of 2 demonstrations are left out: they are longer than the context of 50 tokens (up to 100)"]
    with pytest.raises(DataError, match="all 2 demonstrations are longer"):
        _within([[long], [long]], 50, said.append)


def test_long_demonstrations_go_through_the_model_in_smaller_parts_so_that_they_fit_on_a_gpu() -> None:
    batch = [TokenSequence((1,) * (length - 1), (2,), (1,), (0.0,)) for length in (3000, 100, 2500, 200, 9000, 150)]
    parts = list(_micro_batches(batch, size=3, most_tokens=8192))
    assert [[len(each) for each in part] for part in parts] == [[100, 150, 200], [2500, 3000], [9000]]


def test_fine_tuning_learns_the_same_when_it_computes_activations_again(tiny_model_folder: Path) -> None:
    batch = [TokenSequence(tuple(range(5, 40)), (60 + n, 61, 2), (1, 1, 1)) for n in range(3)]
    losses = []
    attention.register()
    for checkpointing in (False, True):
        compute = Compute(checkpointing=checkpointing)
        model = load_policy(str(tiny_model_folder), cache_dir=tiny_model_folder).model
        model.set_attn_implementation(attention.NAME)
        trained = _prepare_for_training(model, compute)
        losses.append(list(_fine_tune(model, trained, [batch] * 3, 1e-2, micro_batch=2, compute=compute)))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[0][-1] < losses[0][0]
