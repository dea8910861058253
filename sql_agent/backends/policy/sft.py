"""The supervised start: the policy imitates the training questions' own SQL, once, and the result is cached."""

from __future__ import annotations

import hashlib
import json
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from sql_agent.agent.agent import instructions
from sql_agent.agent.tools import QueryTool, answer_json, function_tool
from sql_agent.backends.policy.forward import token_logprobs
from sql_agent.backends.policy.model import Policy, load_policy
from sql_agent.backends.policy.model_cache import build_once, is_complete
from sql_agent.backends.serving.chat import ChatEncoder, Reply
from sql_agent.config.settings import LocalSettings, SftSettings
from sql_agent.database import SqliteDatabase
from sql_agent.errors import DataError
from sql_agent.rl.trajectory import TokenSequence, Turn, merge_turns
from sql_agent.schemas import Question

logger = logging.getLogger(__name__)
_FORMAT = 2  # raise when the examples are made differently, so that old caches are not taken for new ones


def supervised_policy(
    source: str,
    questions: Sequence[Question],
    database: SqliteDatabase,
    *,
    settings: SftSettings,
    local: LocalSettings,
    seed: int,
    micro_batch: int,
    bf16: bool,
    device: str = "cpu",
    lora_rank: int = 0,
    stopped: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int, float], None] = lambda step, steps, loss: None,
) -> Policy:
    """The policy `source` after supervised fine-tuning on `device`, from the cache when the same one was done before.

    With a `lora_rank` only adapters learn, which are then added to the weights: what they need beside the weights is
    small, where all weights need 12 bytes each for gradient and optimizer.
    `micro_batch` examples go through the model at a time. `stopped` is asked after each step; when it says yes, the
    policy comes back as it is and nothing is cached. `progress` is called with step, steps and loss in nats. Raises
    DataError when no question has SQL to learn from.
    """
    policy = load_policy(source, cache_dir=local.cache_dir)
    if settings.steps == 0:
        return policy
    taught = [q for q in questions if q.sql]
    if not taught:
        raise DataError("no training question has SQL, so there is nothing to fine-tune on", hint="set sft.steps=0")
    encoder = ChatEncoder(policy.tokenizer, policy.end_id)
    examples = [example(q, database, encoder, policy) for q in _choose(taught, settings, seed)]
    batches = [examples[i : i + settings.batch] for i in range(0, len(examples), settings.batch)]
    folder = local.cache_dir / f"sft-{_fingerprint(policy, settings, lora_rank, batches)}"
    with build_once(folder, stopped) as ours:
        if ours:
            torch.manual_seed(seed)
            learner = _prepared(policy.model, device, lora_rank)
            losses = _imitate(policy.model, learner, batches, settings.lr, micro_batch=micro_batch, bf16=bf16)
            for step, loss in enumerate(losses):
                progress(step + 1, len(batches), loss)
                if stopped():
                    return policy
            policy.model = (learner.merge_and_unload() if lora_rank else learner).eval()
            policy.save(folder)
            policy.source = str(folder)
            return policy
    if not is_complete(folder):
        return policy
    logger.info("supervised fine-tuning taken from %s", folder)
    return load_policy(str(folder), cache_dir=local.cache_dir)


def _prepared(model: Any, device: str, lora_rank: int) -> Any:
    """`model` on `device`, ready to train; wrapped so that only adapters learn when `lora_rank` is more than 0."""
    model.to(device)
    if device != "cpu":
        model.set_attn_implementation("sdpa")  # eager attention keeps length x length numbers a head and layer
    if lora_rank:
        from peft import LoraConfig, get_peft_model  # noqa: PLC0415  slow to import

        adapters = LoraConfig(r=lora_rank, lora_alpha=2 * lora_rank, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, adapters)
    return model.train()


def _imitate(
    model: Any, learner: Any, batches: Sequence[Sequence[TokenSequence]], lr: float, *, micro_batch: int, bf16: bool
) -> Iterator[float]:
    """One optimizer step of `learner`, which wraps `model` or is it, over each of `batches`; yields its loss."""
    parameters = [p for p in learner.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0)
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = lr * _schedule(step, len(batches))
        loss = _add_gradient(model, batch, micro_batch=micro_batch, bf16=bf16)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss


def _add_gradient(model: Any, batch: Sequence[TokenSequence], *, micro_batch: int, bf16: bool) -> float:
    """Add the gradient of the mean loss over the sampled tokens of `batch`; returns that loss in nats a token."""
    tokens = sum(s.sampled for s in batch)
    total = 0.0
    for start in range(0, len(batch), micro_batch):
        values, _ = token_logprobs(model, batch[start : start + micro_batch], bf16=bf16)
        loss = -values.sum() / tokens
        loss.backward()
        total += loss.item()
    return total


def example(question: Question, database: SqliteDatabase, encoder: ChatEncoder, policy: Policy) -> TokenSequence:
    """One demonstration as the agent itself would have lived it: question, gold SQL, its rows, the answer."""
    if question.sql is None:
        raise DataError(f"question {question.id} has no SQL to demonstrate")
    tools = [tool_schema(database)]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": instructions(question.lang, database.schema.columns)},
        {"role": "user", "content": question.question},
    ]
    call = {"name": "query_database_by_sql", "arguments": {"sql": question.sql}}
    turns = []
    for text in (f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>", question.answer):
        prompt_ids = encoder.encode(messages, tools)
        ids = (*policy.tokenizer(text, add_special_tokens=False)["input_ids"], policy.end_id)
        reply = encoder.reply(ids)
        encoder.remember(messages, tools, prompt_ids, Reply(reply.message, ids))
        turns.append(Turn(prompt_ids, ids))
        messages.append(reply.message)
        for made in reply.message.get("tool_calls", []):
            rows = answer_json(database.query(question.sql))
            messages.append({"role": "tool", "tool_call_id": made["id"], "content": rows})
    return merge_turns(turns)[-1]


def tool_schema(database: SqliteDatabase) -> dict[str, Any]:
    """The tool as the agent's requests describe it to the model."""
    tool = function_tool(QueryTool(database))
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.params_json_schema,
            "strict": tool.strict_json_schema,
        },
    }


def _choose(questions: Sequence[Question], settings: SftSettings, seed: int) -> list[Question]:
    """Questions of all task types in turn, so that a short fine-tuning sees each of them equally often."""
    rng = random.Random(seed)
    kinds: dict[str, list[Question]] = {}
    for question in questions:
        kinds.setdefault(question.task_type or "", []).append(question)
    pools = [pool for _, pool in sorted(kinds.items())]
    for pool in pools:
        rng.shuffle(pool)
    turns = range(settings.steps * settings.batch)
    return [pools[i % len(pools)][i // len(pools) % len(pools[i % len(pools)])] for i in turns]


def _schedule(step: int, steps: int) -> float:
    """Rise over the first tenth, then fall linearly to a tenth."""
    rise = max(1, steps // 10)
    return min(1.0, (step + 1) / rise) * (1.0 - 0.9 * step / steps)


def _fingerprint(
    policy: Policy, settings: SftSettings, lora_rank: int, batches: Sequence[Sequence[TokenSequence]]
) -> str:
    digest = hashlib.sha256(f"{_FORMAT} {settings.model_dump_json()} {lora_rank}".encode())
    digest.update(_weights_identity(policy))
    for batch in batches:
        for s in batch:
            digest.update(repr((s.prompt_ids, s.response_ids, s.response_mask)).encode())
    return digest.hexdigest()[:16]


def _weights_identity(policy: Policy) -> bytes:
    """A cheap fingerprint of the weights themselves: a renamed or replaced folder is recognised by its content."""
    sums = [f"{name}:{parameter.double().sum().item():.6e}" for name, parameter in policy.model.named_parameters()]
    return hashlib.sha256("".join(sums).encode()).digest()
