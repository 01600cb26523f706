"""Evaluation of graphs, models and prompts on rows of data.

found = await evaluate("questions.jsonl", [react(), rewoo()], models=model, scorers="number", store="sqlite:///runs.db")
print(found.to_text())

data          rows from files, collections and recorded runs
scorers       what an answer is worth; judges are graphs that score
budget        one purse for all calls
running       each row is a run; an interrupted evaluation continues
results       figures, differences and wrong rows; statistics has the formulas
recorded      recorded runs as rows, and replayed with a change
reports       JUnit and a picture
"""

from orchestrator.evaluation.data import ExpectedCall, Fields, Row
from orchestrator.evaluation.judges import GraphJudge
from orchestrator.evaluation.recorded import Counterfactual, RecordedRuns, ReplayedRun, counterfactual
from orchestrator.evaluation.results import Agreement, Difference, Evaluation, Progress, VariantResult, WrongCase
from orchestrator.evaluation.running import evaluate
from orchestrator.evaluation.scorers import Case, MadeCall, Scorer, Verdict

__all__ = [
    "Agreement",
    "Case",
    "Counterfactual",
    "Difference",
    "Evaluation",
    "ExpectedCall",
    "Fields",
    "GraphJudge",
    "MadeCall",
    "Progress",
    "RecordedRuns",
    "ReplayedRun",
    "Row",
    "Scorer",
    "VariantResult",
    "Verdict",
    "WrongCase",
    "counterfactual",
    "evaluate",
]
