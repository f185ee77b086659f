"""The paper's hybrid: a model divided over ranks, and replicated; both kinds of traffic thresholded."""
