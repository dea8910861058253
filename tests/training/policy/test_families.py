"""A model of each family is shown calls and answers in the form of its own chat template."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest
import torch

from sql_agent.agent.demonstrations import demonstrate
from sql_agent.agent.tools import tool_schema
from sql_agent.config.settings import load_settings
from sql_agent.database import open_database
from sql_agent.rollouts.llm_proxy import PolicyCalls, ServedModel
from sql_agent.rollouts.trajectory import TokenSequence
from sql_agent.schemas import Question
from sql_agent.tasks.medical.medical_task import TASK
from sql_agent.tasks.medical.tables import SCHEMA
from sql_agent.training.local.sampler import Request, Sampler
from sql_agent.training.policy.forward import token_logprobs
from sql_agent.training.policy.model import Policy, load_policy
from sql_agent.training.policy.sft import example
from sql_agent.training.serving.chat import ChatEncoder
from sql_agent.training.serving.server import Generation, Sampling, ServerThread, build_app
from tests.support.model_families import FAMILIES, make_family_model
from tests.support.sampling import sample
from tests.support.small_database import make_database

SQL = "SELECT form FROM drugs_info WHERE med_name = 'Drug 1'"
QUESTION = Question(id="1", question="Which form has Drug 1?", answer="capsule", sql=SQL)
CALLS = {
    "hermes": f'<tool_call>\n{{"name": "query_database_by_sql", "arguments": {{"sql": "{SQL}"}}}}\n</tool_call>',
    "llama3_json": f'{{"name": "query_database_by_sql", "parameters": {{"sql": "{SQL}"}}}}',
    "mistral": "[TOOL_CALLS]",
    "qwen3_coder": f"<tool_call>\n<function=query_database_by_sql>\n<parameter=sql>\n{SQL}\n</parameter>\n</function>",
    "pythonic": f'[query_database_by_sql(sql="{SQL}")]',
    "gemma": f'```tool_code\nquery_database_by_sql(sql="{SQL}")\n```',
}


def shown(policy: Policy, folder: Path, *, thinking: bool | None = False) -> list[TokenSequence]:
    with open_database(make_database(folder / "medical.db"), SCHEMA) as database:
        demonstration = demonstrate(0, QUESTION, TASK, database, load_settings())
        encoder = ChatEncoder(policy.tokenizer, policy.end_id)
        return example(demonstration, tool_schema(TASK, database), encoder, thinking=thinking)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_demonstration_is_written_in_the_model_s_own_form_and_the_model_learns_it(
    family: str, tmp_path: Path
) -> None:
    policy = load_policy(str(make_family_model(tmp_path / "model", family)), cache_dir=tmp_path)
    (sequence,) = shown(policy, tmp_path)
    trained = [i for i, m in zip(sequence.response_ids, sequence.response_mask, strict=True) if m]
    (tmp_path / "again").mkdir()
    assert shown(policy, tmp_path / "again") == [sequence], "so a fine-tuning is cached"
    call, answer = policy.tokenizer.decode(trained).split(FAMILIES[family][3])[:2]
    assert CALLS[FAMILIES[family][2]] in call and json.dumps(SQL)[1:-1] in call
    assert answer.strip().endswith("capsule")
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=3e-3)
    losses = []
    for _ in range(3):
        values, _ = token_logprobs(policy.model, [sequence], bf16=False)
        optimizer.zero_grad()
        (-values.mean()).backward()
        optimizer.step()
        losses.append(-values.mean().item())
    assert losses[-1] < losses[0]
    prompts = [(*sequence.prompt_ids, *extra) for extra in ((), (5,))]
    turns = sample(Sampler(policy, seed=0), [Request(ids, max_tokens=4, temperature=1.0) for ids in prompts])
    assert all(1 <= len(turn.token_ids) <= 4 for turn in turns)


@pytest.mark.parametrize(
    ("family", "thinking", "thinks"),
    [
        ("qwen3", None, True),
        ("qwen3", True, True),
        ("qwen3", False, False),
        ("qwen2.5", True, True),
        ("qwen2.5", None, False),
    ],
)
def test_a_model_that_thinks_is_shown_a_short_thought_before_each_turn(
    family: str, thinking: bool | None, thinks: bool, tmp_path: Path
) -> None:
    policy = load_policy(str(make_family_model(tmp_path / "model", family)), cache_dir=tmp_path)
    (sequence,) = shown(policy, tmp_path, thinking=thinking)
    trained = [i for i, m in zip(sequence.response_ids, sequence.response_mask, strict=True) if m]
    call, answer = policy.tokenizer.decode(trained).split("<|im_end|>")[:2]
    for turn, said in ((call, "The question is about form, so I read drugs_info.form."), (answer, "Now I can answer.")):
        assert turn.startswith(f"<think>\n{said}\n</think>\n\n") == thinks
        assert thinks or "think>" not in turn
    empty = "<think>\n\n</think>" in policy.tokenizer.decode(sequence.prompt_ids)
    assert empty == (family == "qwen3" and thinking is False)


def test_a_demonstration_has_the_prompt_of_a_rollout(policy: Policy, tmp_path: Path) -> None:
    (sequence,) = shown(policy, tmp_path)
    prompts = []

    class Engine:
        max_context = 100_000

        async def generate(self, prompt_ids: tuple[int, ...], sampling: Sampling, *, conversation: str) -> Generation:
            prompts.append(prompt_ids)
            return Generation((*policy.tokenizer("capsule")["input_ids"], policy.end_id), "stop")

    settings = load_settings()
    server = ServerThread()
    server.start(build_app(ChatEncoder(policy.tokenizer, policy.end_id), Engine()))
    asked = PolicyCalls([ServedModel("m", server.base_url)])

    async def ask() -> None:
        with open_database(tmp_path / "medical.db", SCHEMA) as database:
            tools = [tool_schema(TASK, database)]
            system = TASK.instructions("en", database, settings)
            question = TASK.question_text(QUESTION, database)
        messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        body = json.dumps({"model": "m", "messages": messages, "tools": tools}).encode()
        assert (await asked.answer(body)).status == 200
        await asked.close()
        async with httpx.AsyncClient() as client:  # as `sql-agent evaluate` asks, without a proxy
            direct = await client.post(f"{server.base_url}/chat/completions", content=body, timeout=30)
            assert direct.status_code == 200

    asyncio.run(ask())
    server.stop()
    assert prompts == [sequence.prompt_ids, sequence.prompt_ids]


def test_with_our_own_template_the_demonstrations_are_those_that_earlier_models_were_trained_on(
    policy: Policy, tmp_path: Path
) -> None:
    (sequence,) = shown(policy, tmp_path)
    trained = [i for i, m in zip(sequence.response_ids, sequence.response_mask, strict=True) if m]
    body = json.dumps({"name": "query_database_by_sql", "arguments": {"sql": SQL}}, ensure_ascii=False)
    turns = [f"<tool_call>\n{body}\n</tool_call>", "capsule"]
    ids = [[*policy.tokenizer(turn, add_special_tokens=False)["input_ids"], policy.end_id] for turn in turns]
    assert trained == [*ids[0], *ids[1]]
