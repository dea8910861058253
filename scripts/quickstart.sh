#!/usr/bin/env bash
# From a fresh clone to one real GRPO step: environment, sample data, supervised fine-tuning,
# the step, and one question before and after it.
# Needs Python 3.11 or 3.12 and two cores; no GPU, no API key. Five to seven minutes, eleven on a busy machine.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
cd "$root"
started=$SECONDS
echo "1/5  Environment (.venv)"
make_environment ""
echo "     $((SECONDS - started)) s"
echo "2/5  Sample database and questions (var/)"
python -m sql_agent data build --lang en
python -m sql_agent data questions --db var/sample_en.db --style template   # those that --ci-fast trains on
echo "3/5  Supervised fine-tuning on the training questions' SQL, then one GRPO step (runs/)"
name=quickstart; [ ! -e "runs/$name" ] || name=quickstart-$(date +%Y%m%d-%H%M%S)
# More fine-tuning than in the recipe, on both tables: the question below is about a disease, and one GRPO step adds little.
python sql_agent/train_sql_agent.py --ci-fast "run_name=$name" data.val_questions=20 train.validate_untrained=true sft.steps=6 \
  data.task_types=lookup "$@"
echo "4/5  One question before and after training"
python -m sql_agent ask --run "runs/$name"
echo "5/5  Done in $((SECONDS - started)) s: 20 validation questions, untrained, after supervised fine-tuning, after one GRPO step"
python -m sql_agent runs "$name"
cat <<EOT
Next, see every rollout:  . .venv/bin/activate && sql-agent report runs/$name --serve
Then train for longer:    sql-agent train --ci        (14 steps, docs/results.md, "On two cores")
EOT
