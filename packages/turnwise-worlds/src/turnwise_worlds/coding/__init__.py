"""Programs from examples, judged by hidden tests (DeepCoder): generated functions and published problems."""
