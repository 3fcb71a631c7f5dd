"""Print the names of every task, group and tag that this environment's lm-eval knows, one a line.

PYTHON evaluation/workers/list_tasks.py > evaluation/lm_eval_tasks.txt
"""

from __future__ import annotations

import sys

from lm_eval.tasks import TaskManager

sys.stdout.writelines(f"{name}\n" for name in sorted(TaskManager().all_tasks))
