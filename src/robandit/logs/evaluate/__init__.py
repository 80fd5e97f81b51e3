"""Off-policy evaluation of the service's log: what another policy would have earned. See docs/how-to/evaluate.md."""

from robandit.logs.evaluate.evaluation import LEAST, LOGGED, UNIFORM, Evaluation, EvaluationRow, evaluate

__all__ = ["LEAST", "LOGGED", "UNIFORM", "Evaluation", "EvaluationRow", "evaluate"]
