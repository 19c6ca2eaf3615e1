"""Questions that take more than one plan to answer; all of them prepare a model once and plan it again and again."""
