"""Fine-tune the policy before GRPO on demonstrations made from the training questions' gold SQL; cache the model."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from heapq import merge
from itertools import count, islice, zip_longest
from pathlib import Path
from typing import Any

import torch

from sql_agent.agent.demonstrations import Demonstration, demonstrate
from sql_agent.agent.tools import tool_schema
from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings import Settings
from sql_agent.config.settings_schema import SftSettings
from sql_agent.database import DatabasePool
from sql_agent.errors import DataError, ModelError
from sql_agent.questions.derived_evidence import with_extractive_answers
from sql_agent.reward.factory import judge_name
from sql_agent.rollouts.trajectory import TokenSequence, Turn, merge_turns
from sql_agent.schemas import TOOL_NAME, Question
from sql_agent.tasks.task import Task
from sql_agent.training.policy import attention
from sql_agent.training.policy.forward import SharedPrefix, clip_gradient, common_prefix, token_logprobs
from sql_agent.training.policy.model import Policy, add_adapters, build_once, load_policy
from sql_agent.training.serving.chat import CALL_ID, ChatEncoder, call_message
from sql_agent.training.serving.tool_format import Call

_THREADS = 16  # maximum number of threads that run the SQL of demonstrations
_SAID_EVERY = 500  # demonstrations between two progress lines
_LOSSES = "sft.jsonl"  # file in the folder of a cached model, with the loss of each step
_FORMAT = 3  # part of the cache key; increment it when the demonstrations change
_SHORT = 512  # minimum number of demonstrations to cover every question type


@dataclass(frozen=True)
class Compute:
    """The options for supervised fine-tuning on torch's `device`.

    With a `lora_rank` above 0, only LoRA adapters are trained and then merged into the weights, which saves 12 bytes
    for each weight. Demonstrations of more than `max_context` tokens are left out, because no rollout can be that long,
    and one such demonstration can take gigabytes of memory. A micro-batch has at most `micro_tokens` tokens, or one
    longer sequence. `checkpointing` turns gradient checkpointing on.
    """

    device: str = "cpu"
    bf16: bool = False
    lora_rank: int = 0
    max_context: int | None = None
    micro_tokens: int = 8192
    checkpointing: bool = False


def fine_tuned_model(
    settings: Settings,
    questions: Sequence[Question],
    task: Task,
    databases: DatabasePool,
    *,
    compute: Compute,
    progress: Callable[[int, int, float], None],
    say: Callable[[str], None],
) -> str:
    """Fine-tune the model `settings.model` unless the fine-tuned model is cached, and return its folder.

    Returns `settings.model` itself when `sft.steps` is 0. The model learns the gold SQL of `questions` and the answers
    that the run's judge rewards. `progress` gets the step (from 1), the number of steps and the loss in nats per token.
    `say` gets lines for the user, also while demonstrations are written. An exception of `progress` or `say` ends the
    fine-tuning, and nothing is cached. Raises ModelError when the model cannot be loaded, DataError when no question
    has SQL or every demonstration is too long, and TrainingError when a gradient is not finite.
    """
    sft, cache_dir = settings.sft, settings.local.cache_dir
    if sft.steps == 0:
        return settings.model
    policy = load_policy(settings.model, cache_dir=cache_dir, agent=settings.agent)
    examples = _within(_examples(settings, questions, task, databases, policy, say=say), compute.max_context, say)
    starts = range(0, len(examples), sft.batch)
    batches = [[sequence for shown in examples[i : i + sft.batch] for sequence in shown] for i in starts]
    folder = cache_dir / f"sft-{_fingerprint(policy, sft, compute.lora_rank, batches)}"

    def fine_tune() -> None:
        say(f"Supervised fine-tuning, {len(batches)} steps; the model is kept in {folder}")
        torch.manual_seed(settings.seed)
        trained = _prepare_for_training(policy.model, compute)
        rows = settings.train.micro_batch if compute.device == "cpu" else sft.batch
        losses = _fine_tune(policy.model, trained, batches, sft.lr, micro_batch=rows, compute=compute)
        lines = []
        for step, loss in enumerate(losses, 1):
            lines.append(json.dumps({"step": step, "steps": len(batches), "loss": loss}) + "\n")
            progress(step, len(batches), loss)
        policy.model = trained.merge_and_unload() if compute.lora_rank else trained
        policy.save(folder)
        (folder / _LOSSES).write_text("".join(lines), encoding="utf-8")

    build_once(folder, fine_tune)
    return str(folder)


def copy_losses(model: str, target: Path) -> None:
    """Copy the losses of a cached `model` to the file `target`, unless a fine-tuning in this run has written it."""
    losses = Path(model) / _LOSSES
    if losses.is_file() and not target.exists():
        shutil.copyfile(losses, target)


def _examples(
    settings: Settings,
    questions: Sequence[Question],
    task: Task,
    databases: DatabasePool,
    policy: Policy,
    *,
    say: Callable[[str], None],
) -> list[list[TokenSequence]]:
    """Return each demonstration's token sequences in the order of training. Raises DataError if no question has SQL."""
    shown_questions = [q for q in questions if q.statements or (task.answer_is_sql and task.abstains(q.answer, q.lang))]
    if not any(question.statements for question in shown_questions):
        raise DataError("no training question has SQL for fine-tuning", hint="set sft.steps=0")
    encoder = ChatEncoder(policy.tokenizer, policy.end_id, settings.agent.tool_format)
    with_rewarded_answer = rewarded_answers(settings, task, databases)

    def show(number: int, question: Question) -> tuple[Demonstration, dict[str, Any]]:
        with databases.of(question.database) as database:
            shown = demonstrate(number, with_rewarded_answer(question), task, database, settings)
            return shown, tool_schema(task, database)

    # Threads are enough here, because other processes run the SQL statements.
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as threads:
        chosen = _choose(shown_questions, settings.sft, settings.seed)
        shown = threads.map(show, range(len(chosen)), chosen)
        made: list[list[TokenSequence]] = []
        try:
            for demonstration, tool in shown:
                made.append(example(demonstration, tool, encoder, thinking=settings.agent.enable_thinking))
                if len(made) % _SAID_EVERY == 0:
                    say(f"{len(made)} of {len(chosen)} demonstrations written")
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
        return made


def _within(
    examples: list[list[TokenSequence]], max_context: int | None, say: Callable[[str], None]
) -> list[list[TokenSequence]]:
    """Return the examples whose sequences have at most `max_context` tokens each, and `say` how many are left out.

    Raises DataError when no example is short enough.
    """
    if max_context is None:
        return examples
    lengths = [max(map(len, sequences)) for sequences in examples]
    kept = [each for each, length in zip(examples, lengths, strict=True) if length <= max_context]
    longest = max(lengths)
    if not kept:
        raise DataError(
            f"all {len(examples)} demonstrations are longer than the context of {max_context} tokens (up to {longest})",
            hint="raise local.max_context, lower database.max_chars, or set sft.steps=0",
        )
    if len(kept) < len(examples):
        say(
            f"{len(examples) - len(kept)} of {len(examples)} demonstrations are left out: they are longer than the "
            f"context of {max_context} tokens (up to {longest})"
        )
    return kept


def rewarded_answers(settings: Settings, task: Task, databases: DatabasePool) -> Callable[[Question], Question]:
    """Return a function that replaces a question's answer by one that the judge rewards: for "facts" an extract."""
    if task.answer_is_sql or judge_name(settings.judge, TeacherSettings()) != "facts":
        return lambda question: question
    return lambda question: with_extractive_answers([question], databases, task.words)[0]


def _prepare_for_training(model: Any, compute: Compute) -> Any:
    """Move `model` to the device, add LoRA adapters if their rank is above 0, and return the model to train."""
    model.to(compute.device)
    if compute.device == "cuda":
        attention.register()
        model.set_attn_implementation(attention.NAME)  # it computes the shared prompt of the demonstrations once
    # With a mask, cuDNN's attention returns NaN gradients for some lengths on H100 and H200 (pytorch#196678).
    torch.backends.cuda.enable_cudnn_sdp(False)
    if compute.checkpointing:
        # transformers 5.9 has only the second name, of which 5.23 warns.
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    if not compute.lora_rank:
        return model.train()
    if compute.device != "cpu":
        model.to(torch.bfloat16)  # the frozen weights
    return add_adapters(model, compute.lora_rank).train()


def _fine_tune(
    model: Any,
    trained: Any,
    batches: Sequence[Sequence[TokenSequence]],
    lr: float,
    *,
    micro_batch: int,
    compute: Compute,
) -> Iterator[float]:
    """Do one optimizer step for each of `batches`, and yield its loss in nats per token.

    `trained` is `model`, or `model` with LoRA adapters. A micro-batch has at most `micro_batch` sequences.
    """
    parameters = [p for p in trained.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0, fused=True)
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = lr * _schedule(step, len(batches))
        tokens, total = sum(s.sampled for s in batch), 0.0
        prefix = SharedPrefix.of(model, batch, bf16=compute.bf16)
        for part in _micro_batches(batch, micro_batch, compute.micro_tokens):
            values, _ = token_logprobs(model, part, bf16=compute.bf16, prefix=prefix)
            loss = -values.sum() / tokens
            loss.backward()
            total += loss.item()
        if prefix:
            prefix.backward()
        clip_gradient(
            parameters,
            where=f"step {step + 1} of {len(batches)} of supervised fine-tuning",
            hint="lower sft.lr, or set sft.steps=0 to train the model as it is",
        )
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield total


def _micro_batches(batch: Sequence[TokenSequence], size: int, most_tokens: int) -> Iterator[list[TokenSequence]]:
    """Split `batch` by length into micro-batches of at most `size` sequences and `most_tokens` tokens with padding.

    The prompt that all sequences share counts once. A sequence of more than `most_tokens` is a micro-batch alone.
    """
    shared = common_prefix([s.prompt_ids for s in batch])
    part: list[TokenSequence] = []
    for sequence in sorted(batch, key=len):
        tokens = shared + (len(part) + 1) * (len(sequence) - shared)
        if part and (len(part) == size or tokens > most_tokens):
            yield part
            part = []
        part.append(sequence)
    yield part


def example(
    demonstration: Demonstration, tool: dict[str, Any], encoder: ChatEncoder, *, thinking: bool | None = None
) -> list[TokenSequence]:
    """Convert a demonstration into token sequences like those of a rollout; the mask is 1 on the trained turns.

    The model's chat template renders the calls and the answers. A turn begins with a short thought if the model thinks
    when the template gets `enable_thinking=thinking`. If the template rewrites earlier turns, there are several
    sequences. Raises ModelError when a rendered call cannot be parsed in the model's tool-call format.
    """
    tools = [tool] if demonstration.has_tool else None
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": demonstration.system},
        {"role": "user", "content": demonstration.opening},
    ]
    turns, thinks = [], encoder.thinks(thinking)
    for turn in demonstration.turns:
        prompt_ids = encoder.encode(messages, tools, thinking)
        shown = {"role": "assistant", "content": turn.text}
        if turn.is_call:
            shown = call_message(Call(TOOL_NAME, {"sql": turn.text}))
        if thinks:
            shown["reasoning_content"] = turn.thought
        ids = encoder.turn_ids(messages, shown, tools, thinking)
        message = encoder.reply(ids, prompt_ids)
        if turn.is_call and not message.get("tool_calls"):
            raise ModelError(
                f"the chat template renders a tool call that is not in the format {encoder.tool_format!r}",
                hint="set agent.tool_format=auto, or give another template with agent.chat_template=FILE",
            )
        for call in message.get("tool_calls", []):
            call["id"] = CALL_ID
        messages.append(message)
        encoder.remember(messages, tools, prompt_ids + ids)
        if turn.is_trained:
            turns.append(Turn(prompt_ids, ids))
        calls = message.get("tool_calls", [])
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": turn.reaction} for call in calls]
        if turn.reaction and not calls:
            messages.append({"role": "user", "content": turn.reaction})
    return merge_turns(turns)


def _choose(questions: Sequence[Question], settings: SftSettings, seed: int) -> list[Question]:
    """Return `steps` x `batch` questions in the order of training, with each task type spread evenly over the steps.

    If there are fewer demonstrations than questions, a type's share grows with the square root of its number, so that a
    rare type has enough. Fewer than 512 are all lookups, if there are lookups, and the columns alternate: among 128
    demonstrations of all types, only 21 were lookups, for 22 columns.
    """
    rng, size = random.Random(seed), settings.steps * settings.batch
    by_type: dict[str, list[Question]] = {}
    for question in questions:
        by_type.setdefault(question.task_type or "", []).append(question)
    for _, of_type in sorted(by_type.items()):
        rng.shuffle(of_type)
    if size < _SHORT and (lookups := _even_lookups(by_type.get("lookup", []), rng)):
        return [lookups[number % len(lookups)] for number in range(size)]
    power = 1.0 if size >= len(questions) else 0.5
    streams = [_repeated(name, of_type, len(of_type) ** power) for name, of_type in by_type.items()]
    return [question for _, _, question in islice(merge(*streams, key=lambda place: place[:2]), size)]


def _repeated(task_type: str, questions: Sequence[Question], share: float) -> Iterator[tuple[float, str, Question]]:
    """Yield (place, task type, question) without end; `share` of the places lie between two whole numbers."""
    for number in count():
        yield (number + 0.5) / share, task_type, questions[number % len(questions)]


def _even_lookups(lookups: Sequence[Question], rng: random.Random) -> list[Question]:
    """Return `lookups` in an order in which columns alternate, without those whose last SQL reads several columns.

    Each round shuffles the columns. Mistakes are made at a fixed interval, so with one order for all rounds they would
    always fall on the same columns.
    """
    by_column: dict[str, list[Question]] = {}
    for question in (q for q in lookups if q.statements):
        column = question.statements[-1].partition(" WHERE ")[0]
        if "," not in column and "*" not in column:
            by_column.setdefault(column, []).append(question)
    rounds = [list(filter(None, each)) for each in zip_longest(*(by_column[column] for column in sorted(by_column)))]
    return [question for each in rounds for question in rng.sample(each, len(each))]


def _schedule(step: int, steps: int) -> float:
    """Return the factor of the learning rate, which rises over the first tenth of the steps, then falls towards 0.1."""
    rise = max(1, steps // 10)
    return min(1.0, (step + 1) / rise) * (1.0 - 0.9 * step / steps)


def _fingerprint(
    policy: Policy, settings: SftSettings, lora_rank: int, batches: Sequence[Sequence[TokenSequence]]
) -> str:
    digest = hashlib.sha256(f"{_FORMAT} {settings.model_dump_json()} {lora_rank}".encode())
    # The sums of all weight tensors, because the name of a folder does not identify the weights in it.
    sums = [f"{name}:{parameter.double().sum().item():.6e}" for name, parameter in policy.model.named_parameters()]
    digest.update(hashlib.sha256("".join(sums).encode()).digest())
    for batch in batches:
        for s in batch:
            digest.update(repr((s.prompt_ids, s.response_ids, s.response_mask)).encode())
    return digest.hexdigest()[:16]
