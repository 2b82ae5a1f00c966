"""The parts of PyTorch's launcher: names that say what starts and watches processes here."""
from __future__ import annotations

from ....._refused import refused

__all__ = ["ElasticAgent", "RunResult", "SimpleElasticAgent", "Worker", "WorkerGroup", "WorkerSpec", "WorkerState"]

globals().update(refused("arete.distributed.elastic.agent.server.api", "`arete run` starts and watches programs, elastic_launch functions",
                         *__all__))
