"""What happens in a job, as lines of JSON in Python's logging. `arete run` reports in its own way (`--diagnose`); these are for programs
that record events of their own."""
from __future__ import annotations

import dataclasses
import enum
import json
import logging
import os
from typing import Any, Union

__all__ = ["Event", "EventSource", "get_logging_handler", "record"]


class EventSource(str, enum.Enum):
    """Whose event it is."""

    AGENT = "AGENT"
    WORKER = "WORKER"


@dataclasses.dataclass
class Event:
    """What has happened, when (in milliseconds), and whatever else there is to say of it.

    >>> events = arete.distributed.elastic.events
    >>> event = events.Event("saved", events.EventSource.WORKER, metadata={"step": 3})
    >>> event.serialize()
    '{"name": "saved", "source": "WORKER", "timestamp": 0, "metadata": {"step": 3}}'
    >>> events.Event.deserialize(event.serialize()) == event
    True
    """

    name: str
    source: EventSource
    timestamp: int = 0
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return self.serialize()

    def serialize(self) -> str:
        """In JSON."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def deserialize(data: Union[str, "Event"]) -> "Event":
        """The event that a text says."""
        if isinstance(data, Event):
            return data
        known = json.loads(data)
        return Event(**{**known, "source": EventSource[known["source"]]})


_HANDLERS = {"console": logging.StreamHandler(), "null": logging.NullHandler()}


def get_logging_handler(destination: str = "null") -> logging.Handler:
    """Where events go: "console", which is standard error, or "null". KeyError for others."""
    return _HANDLERS[destination]


def record(event: Event, destination: str = "null") -> None:
    """Logs an event, by the logger "torchelastic-events-" and the destination, which programs may give handlers of their own.

    >>> events = arete.distributed.elastic.events
    >>> events.record(events.Event("begun", events.EventSource.AGENT))
    """
    logger = logging.getLogger(f"torchelastic-events-{destination}")
    handler = get_logging_handler(destination)
    if handler not in logger.handlers:
        logger.addHandler(handler)
        logger.setLevel(os.environ.get("LOGLEVEL", "INFO"))
        logger.propagate = False
    logger.info(event.serialize())
