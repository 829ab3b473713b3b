"""What a trained robot is worth: episodes in the kitchen, scored, counted and compared."""

SUITES = {
    "table1": "the paper's main table: the unseen task, shown by the robot and by the demonstrator, also faster",
    "validation": "the same for another unseen task than the paper's (--data.unseen): the only one to make choices by",
    "seen": "what it was trained on, also with something undone: what is missing where nothing is new",
    "perturb": "the last finished sub-task is undone mid-way, and must be done again",
    "mismatch": "the unseen task, shown by demonstrators that move differently: a free hand, two hands at once",
    "orders": "four sub-tasks in orders that no demonstration has, shown by a free hand",
    "pairs": "two sub-tasks in an order kept for this, done by a scripted robot, seen as itself or as the demonstrator",
}
"""What can be evaluated."""
ANY_TASK = ("pairs", "perturb", "seen")
"""Those of them that do not ask which task a model has unseen."""
