"""Experiment trackers: TensorBoard, Weights & Biases, MLflow, Trackio, or a class of your own.

The run folder is the queue. Each tracker has its own process, which reads the folder and sends what it has not sent
yet, so a tracker that hangs, crashes or is slow costs the run nothing, and `turnwise track RUN` does for a stored run
exactly what happens during a run."""
