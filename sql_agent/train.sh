#!/usr/bin/env bash
# Train, from any folder, with the main knobs as variables: LR=1e-5 bash sql_agent/train.sh --ci
# An empty knob takes the backend's default (`sql-agent settings train` lists them); one that is set wins over --ci and
# --model. All arguments are passed on: `sql-agent train --help`.
set -euo pipefail

MODEL=${MODEL:-}            # a Hugging Face folder or id; empty: the bundled SmolLM2-135M-Instruct
BATCH_SIZE=${BATCH_SIZE:-}  # questions a step
ROLLOUTS=${ROLLOUTS:-}      # rollouts a question: the group whose rewards GRPO compares
LR=${LR:-}                  # learning rate
STEPS=${STEPS:-}            # training steps

knobs=()
[ -z "$MODEL" ] || knobs+=("model=$MODEL")
[ -z "$BATCH_SIZE" ] || knobs+=("train.questions_per_step=$BATCH_SIZE")
[ -z "$ROLLOUTS" ] || knobs+=("train.group_size=$ROLLOUTS")
[ -z "$LR" ] || knobs+=("train.lr=$LR")
[ -z "$STEPS" ] || knobs+=("train.steps=$STEPS")
exec python "$(dirname "$0")/train_sql_agent.py" ${knobs[@]+"${knobs[@]}"} "$@"
