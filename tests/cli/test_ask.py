"""`sql-agent ask` shows what a model did so that a person can read it, on whatever terminal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from sql_agent.cli.ask import main
from sql_agent.cli.command import add_words, exits_cleanly, new_parser, parse_words
from sql_agent.config.settings import load_settings
from sql_agent.errors import DataError, SqlAgentError
from sql_agent.questions.question_columns import language
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import Question
from tests.support.chat_server import tool_call
from tests.support.judge_server import Server, serving
from tests.support.processes import run_script
from tests.support.small_database import make_database

SCRIPT = Path(__file__).resolve().parents[2] / "sql_agent" / "sqlagent_test.py"
LONG = (
    "Which of the many drugs in this database, whichever form they have and wherever they are sold, would somebody "
    "with Disease 4 be given [first] by a physician who reads nothing but the table drugs_info?"
)
WIDE_SQL = (
    "SELECT id, med_name, form, indication, component, status, 'a [bold] bracket' AS note FROM drugs_info WHERE id = 4"
)
FORM_SQL = "SELECT form FROM drugs_info WHERE med_name = 'Drug 4'"
ANSWER = (
    "The drug that is given [first] is Drug 4, because the table drugs_info names Disease 4 as its indication, and no "
    "other row of the table does so with the same component."
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A model behind OPENAI_API_BASE."""
    with serving() as server:
        monkeypatch.setattr("sql_agent.agent.rollout._PAUSES_S", (0.01, 0.01, None))
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        monkeypatch.setenv("OPENAI_MODEL", "scripted")
        monkeypatch.setenv("OPENAI_API_KEY", "unused")
        monkeypatch.delenv("COLUMNS", raising=False)
        yield server


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"database.path={make_database(tmp_path / 'medical.db')}"


def unwrapped(output: str) -> str:
    return " ".join(output.split())


def widest(output: str) -> int:
    return max(
        cell_len(line) for line in output.splitlines() if " " in line.strip()
    )  # a path of one word may be longer


@pytest.mark.slow
def test_a_question_of_ones_own_is_shown_in_80_columns_with_no_word_broken(server: Server, database: str) -> None:
    server.script = [tool_call(WIDE_SQL), ANSWER]
    code, output = run_script(SCRIPT, LONG, database)
    assert code == 0, output
    assert widest(output) <= 80
    for text in (LONG, WIDE_SQL, ANSWER):
        assert text in unwrapped(output)
    assert "med_name: Drug 4" in output, "a row that is too wide for a table is shown as a record"
    assert "note: a [bold] bracket" in output
    assert "nothing is graded" in output
    assert "Mean reward" not in output
    assert "not medical advice" in output
    first, *_ = output.splitlines()
    assert first.startswith(f"Asking scripted at {server.url}, database")
    question, values = server.requests[0]["messages"][-1]["content"].splitlines()
    assert question == LONG
    assert values == "Values: disease.disease_name = 'Disease 4'; drugs_info.indication LIKE '%disease 4%'"
    assert "Traceback" not in output


@pytest.mark.parametrize("columns", [40, 120])
def test_the_width_of_the_terminal_is_used_as_it_is(
    server: Server, database: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    server.script = [tool_call(WIDE_SQL), ANSWER]
    assert main([LONG, database]) == 0
    output = capsys.readouterr().out.replace(database.partition("=")[2], "PATH")  # a long path is not broken
    assert columns - 15 < widest(output) <= columns
    assert ANSWER in unwrapped(output)


def test_rows_that_fit_are_a_table_and_a_long_cell_is_cut_and_said_so(
    server: Server, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    long_cell = "SELECT group_concat(med_name, ' ') AS names FROM drugs_info"
    nulls = "SELECT med_name, form FROM drugs_info WHERE id IN (3, 4)"
    server.script = [tool_call(nulls), tool_call("SELECT id FROM drugs_info"), tool_call(long_cell), "tablet"]
    assert main(["Which forms are there?", database, "agent.max_turns=9", "database.max_chars=5000"]) == 0
    output = capsys.readouterr().out
    assert widest(output) <= 80
    assert "│ Drug 3   │ NULL   │" in output
    assert "Rows 20, cut short by the limits on rows and characters, the first 5 are shown" in unwrapped(output)
    assert "… (the first 300 of 1,695 characters)" in unwrapped(output)
    assert "Drug 129 …" in unwrapped(output) and "Drug 199" not in output


def test_a_failed_query_is_shown_with_its_error_and_hint(
    server: Server, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.script = [tool_call("SELECT forms FROM drugs_info"), "I do not know."]
    assert main(["Which forms are there?", database]) == 0
    output = unwrapped(capsys.readouterr().out)
    assert "Error no such column: forms" in output
    assert "Hint" in output and "drugs_info.form" in output


def test_a_query_without_rows_is_shown_with_the_hint_that_the_model_got(
    server: Server, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.script = [tool_call("SELECT form FROM drugs_info WHERE med_name = 'the Drug 4'"), tool_call(FORM_SQL), "x"]
    assert main(["Which form has Drug 4?", database]) == 0
    output = unwrapped(capsys.readouterr().out)
    suggested = "try: SELECT form FROM drugs_info WHERE med_name = 'Drug 4'"
    assert f"Rows none Hint {suggested} Query 2" in output
    assert suggested in str(server.requests[1]["messages"][-1]["content"])


@pytest.fixture
def graded(tmp_path: Path) -> str:
    question = Question(
        id="1", question="Which form has Drug 4?", answer="tablet", task_type="drug_field",
        sql=FORM_SQL,
    )  # fmt: skip
    (tmp_path / "val.jsonl").write_text(question.model_dump_json() + "\n", encoding="utf-8")
    return f"--file={tmp_path / 'val.jsonl'}"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (["tablet"], ["Reward 0.050 of 1.1", "Rule nothing, because the model queried nothing",
                      "Judge facts: gives 100% of the reference; not all of it was read from the rows"]),
        ([tool_call("SELECT form FROM drugs_info WHERE id = 99999"), "tablet"],
         ["Rule nothing, because no query found a row"]),
        ([tool_call("SELECT 1"), "tablet"], ["Rule nothing, because no row came from a table of the database"]),
        ([tool_call(FORM_SQL), "capsule"],
         ["Reward 0.100 of 1.1", "Judge facts: gives 0% of the reference; 1 other items, 1 of them in no row:"]),
        ([tool_call(FORM_SQL)] * 9,
         ["Answer (none)", "Model was still calling the tool when its turns were used up"]),
        ([tool_call(FORM_SQL), "tablet"],
         ["Reference tablet Reward 1.100 of 1.1 = rule 0.1 + judge 1.000 ─", "1.100 of 1.1 on 1 question."]),
    ],
    ids=["no query", "no rows", "no medical rows", "wrong answer", "too many turns", "full marks"],
)  # fmt: skip
def test_a_graded_answer_says_in_words_what_it_lost(
    server: Server, database: str, graded: str, script: list[Any], expected: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    server.script = list(script)
    assert main([graded, database]) == 0
    output = capsys.readouterr().out
    assert widest(output) <= 80
    for words in expected:
        assert words in unwrapped(output)


def test_a_file_with_other_names_of_columns_is_read_by_its_mapping(
    server: Server, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions, mapping = tmp_path / "mine.jsonl", tmp_path / "mine.toml"
    questions.write_text('{"key": 1, "question": "Which form has Drug 4?", "said": "tablet"}', encoding="utf-8")
    mapping.write_text('id = "key"\nanswer = "said"\n', encoding="utf-8")
    server.script = [tool_call(FORM_SQL), "tablet"]
    assert main([f"--file={questions}", f"--mapping={mapping}", database]) == 0
    assert "Reference tablet Reward 1.100 of 1.1" in unwrapped(capsys.readouterr().out)


def test_a_model_that_cannot_be_reached_is_a_failure_with_its_cause(
    server: Server, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.script = [500, 500, 500]
    assert exits_cleanly(main, ["Which forms are there?", database]) == 2
    said = capsys.readouterr()
    assert "InternalServerError" in unwrapped(said.out)
    assert "error: 1 of 1 question could not be asked or graded" in said.err


def test_a_question_is_asked_again_after_a_failure_of_the_server(
    server: Server, database: str, graded: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.script = [500, tool_call(FORM_SQL), "tablet"]
    assert main([graded, database]) == 0
    assert "1.100 of 1.1 on 1 question." in unwrapped(capsys.readouterr().out)


def test_a_model_named_on_the_command_line_is_asked_at_the_endpoint(
    server: Server, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["--model", "other"], ["model=other"]):
        server.script = ["tablet"]
        assert main(["Which forms are there?", database, *arguments]) == 0
        path = database.partition("=")[2]
        assert unwrapped(capsys.readouterr().out).startswith(f"Asking other at {server.url}, database {path}")
        assert server.requests[-1]["model"] == "other"


def test_a_folder_named_on_the_command_line_wins_over_the_endpoint(
    server: Server, database: str, tiny_model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = ["local.max_context=8192", "agent.max_tokens=8"]
    assert main(["Which forms are there?", database, f"--model={tiny_model_folder}", *tiny]) == 0
    assert unwrapped(capsys.readouterr().out).startswith(f"Asking {tiny_model_folder}, served on this machine")
    assert server.requests == []


def test_settings_of_the_environment_are_said(
    server: Server, database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQL_AGENT_AGENT__MAX_TURNS", "3")
    server.script = ["tablet"]
    assert main(["Which forms are there?", database, "--model", "other"]) == 0
    assert "Settings from environment: agent.max_turns" in capsys.readouterr().out


def test_an_endpoint_without_a_model_is_refused(server: Server, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_MODEL")
    with pytest.raises(SqlAgentError, match="OPENAI_MODEL"):
        main(["Which forms are there?", database])


def test_a_chinese_question_is_asked_in_chinese_and_not_wider_than_the_terminal(
    server: Server, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    question = "布洛芬是什么剂型？" * 12
    for flags, word in (([], "不构成医疗建议"), (["--lang=en"], "not medical advice"), (["lang=en"], "not medical")):
        server.script = [tool_call("SELECT form FROM drugs_info WHERE med_name = '布洛芬'"), "片剂。" * 30]
        assert main([question, database, *flags]) == 0
        assert word in server.requests[-1]["messages"][0]["content"]
        output = capsys.readouterr().out
        assert widest(output) <= 80
        assert question in "".join(output.split()), "no character is lost"
        assert "│ 片剂 │" in output


def test_what_has_an_equals_sign_and_no_space_before_it_is_a_setting_and_all_else_a_question() -> None:
    parser = new_parser("ask", "", "")
    add_words(parser, "QUESTION")
    words = ["What is 2 = 2?", "agent.max_turns=3", "Why?", "agent.mcp_command=sql-agent mcp"]
    arguments = parse_words(parser, words)
    assert arguments.words == ["What is 2 = 2?", "Why?"]
    assert arguments.overrides == ["agent.max_turns=3", "agent.mcp_command=sql-agent mcp"]
    assert language("Is 布洛芬 a drug?") == "zh"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], "a question is empty"),
        (["Why?", "-n", "2"], "-n chooses questions from a file"),
        (["Why?", "--file=x"], "--file cannot be combined with a QUESTION"),
        (["-n", "none"], "'none' is not a whole number from 1"),
        (["--run=runs/x", "--file=x"], "not allowed with"),
        (["--mapping=x"], "--mapping needs --file"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert message in unwrapped(capsys.readouterr().err)


@pytest.fixture
def run(tmp_path: Path, tiny_model_folder: Path, database: str) -> Path:
    """What a run with one checkpoint leaves; its second question gained most."""
    settings = load_settings(
        [f"model={tiny_model_folder}", f"runs_dir={tmp_path / 'runs'}", "run_name=r", database, "lang=en",
         "local.max_context=8192", "agent.max_tokens=8", "sft.steps=0"]
    )  # fmt: skip
    folder = RunLog.create(settings).folder
    checkpoint = folder / "checkpoints" / "step-000003"
    shutil.copytree(tiny_model_folder, checkpoint / "model")
    (checkpoint / "state.json").write_text('{"step": 3}\n')
    rewards = {0: (1.0, 0.2, 0.0), 3: (1.0, 0.9, 0.5)}
    with (folder / "rollouts.jsonl").open("w", encoding="utf-8") as sink:
        for step, judged in rewards.items():
            for number, judge in enumerate(judged, 1):
                question = Question(id=f"{number}", question=f"Question number {number}?", answer="tablet")
                reward = {"rule": 0.1, "judge": judge, "judge_name": "facts", "criteria": {}, "reason": ""}
                record = {"question": question.model_dump(mode="json"), "reward": reward}
                sink.write(json.dumps({"step": step, "mode": "val", "record": record}) + "\n")
        sink.write('{"step": 3, "mode": "train", "record": null}\n')
        sink.write('{"step": 3, "mode": "val", "rec')
    return folder


@pytest.mark.slow
def test_a_run_answers_the_question_that_gained_most_before_and_after_training(run: Path, server: Server) -> None:
    code, output = run_script(SCRIPT, "--run", str(run))
    assert code == 0, output
    output = unwrapped(output)
    assert (
        "not a random one: of the 3 validation questions its reward rose most, from 0.300 at step 0 to 1.000 at step 3"
        in output
    )
    before, after = output.index("─ Before training ─"), output.index("─ After training ─")
    assert before < output.index("Question number 2?") < after
    assert output.count("Question number 2?") == 2
    assert "Reward 0.000 before and 0.000 after GRPO, of 1.1." in output
    assert server.requests == [], "the models of the run are asked, not the endpoint"


def test_a_run_without_a_gain_does_not_claim_one(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    text = (run / "rollouts.jsonl").read_text(encoding="utf-8").replace('"judge": 0.9', '"judge": 0.1')
    (run / "rollouts.jsonl").write_text(text.replace('"judge": 0.5', '"judge": 0.0'), encoding="utf-8")
    assert main(["--run", str(run)]) == 0
    output = unwrapped(capsys.readouterr().out)
    assert (
        "no reward rose from step 0 to step 3 of GRPO; "
        "the reward of this question fell least and is the highest, 1.100." in output
    )
    assert output.count("Question number 1?") == 2


def test_a_run_of_the_verl_backend_names_the_export(run: Path) -> None:
    (run / "checkpoints" / "step-000003").rename(run / "checkpoints" / "global_step_3")
    with pytest.raises(SqlAgentError, match="not Hugging Face folders") as caught:
        main(["--run", str(run)])
    assert f"sql-agent export {run} OUT, then sql-agent ask --run {run} --model OUT" in str(caught.value.hint)


def test_a_model_s_folder_is_no_run(tiny_model_folder: Path) -> None:
    with pytest.raises(DataError, match="there is no run in"):
        main(["--run", str(tiny_model_folder)])


def test_a_run_that_did_not_validate_twice_says_so(run: Path) -> None:
    lines = (run / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()
    (run / "rollouts.jsonl").write_text("".join(f"{line}\n" for line in lines[:3]), encoding="utf-8")
    with pytest.raises(SqlAgentError, match="two validations"):
        main(["--run", str(run)])
    with pytest.raises(SqlAgentError, match="there is no run in"):
        main(["--run", str(run.parent)])
