"""Questions about the whole history of a long log: CPU and wall time (``ops.bench.questions``)."""
