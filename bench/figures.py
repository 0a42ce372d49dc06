"""Every figure there is: its name, its unit, and what is timed."""

from __future__ import annotations

from dataclasses import dataclass

CALLERS = (1, 8, 64)
"""How many threads call `produce` at once."""

LANES = (1, 3, 10)
"""How many priorities are mixed."""

PACED_PER_SECOND = 1_000
"""Messages a second of the end-to-end latency."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. Rates (`.../s`) are better when high, everything else when low."""

    name: str
    unit: str
    timed: str
    digits: int = 0

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.unit.endswith("/s")


def _latency(name: str, timed: str) -> tuple[Figure, Figure]:
    return Figure(f"{name}_p50", "us", timed), Figure(f"{name}_p99", "us", timed)


FIGURES = {
    each.name: each
    for each in (
        Figure("send", "msg/s", "`producer.send`, one call a message, until `flush` returns"),
        Figure("produce_lists", "msg/s", "`produce_many` of lists of 100,000 values, until the last receipt"),
        Figure("consume_messages", "msg/s", "a `replay` of all, one `Message` object each"),
        Figure("consume_batches", "msg/s", "the same by `MessageBatch`: checksums verified, columns not made objects"),
        *(
            Figure(f"callers_{count}", "msg/s", f"{count} blocking callers of `client.produce`, one message a call")
            for count in CALLERS
        ),
        *_latency("round_trip", "`client.produce`, one at a time, until it is as durable as said"),
        *_latency(
            "deliver",
            f"from a send without linger to the message in a consumer elsewhere, {PACED_PER_SECOND:,} a second",
        ),
        Figure("queue", "msg/s", "a queue group: each message acknowledged on its own, until the last is settled"),
        Figure("queue_beside", "msg/s", "the same while another process consumes all by another group"),
        Figure("queue_nacks", "msg/s", "the same with 1 % of the messages given back at their first delivery"),
        *_latency("queue_ack", "one acknowledgement alone, until it is as durable as said"),
        *_latency("queue_acquire", "`receive(1)` of 50 consumers with one message in flight each, from a backlog"),
        Figure("queue_holes_memory", "MB", "RssAnon of a broker with every second message of a group acknowledged", 1),
        Figure("queue_holes_growth", "MB", "how much of it came with the acknowledgements", 1),
        Figure("queue_holes_restart", "s", "from starting it after kill -9 to the group's account", 2),
        *(
            Figure(f"queue_lanes_{count}", "msg/s", f"`queue` with {count} priorities, mixed at random")
            for count in LANES
        ),
        Figure(
            "queue_weighted_small", "msg/s", "`queue` with three lanes and weights, in small batches of one lane each"
        ),
        Figure("queue_weighted_large", "msg/s", "the same with each lane in few large batches"),
        *_latency("queue_overtake", "a message of priority 7 past a backlog of others, from its send to the consumer"),
        Figure("dead_letters_in", "msg/s", "`reject` on each message, until the last copy is durable"),
        Figure("dead_letters_redriven", "msg/s", "`dead_letters.redrive` of all of them, until it returns"),
        Figure("restart_after_kill", "s", "from starting after kill -9 to the first answer, with 1 GB of log", 2),
        Figure("lane_restart_empty_serving", "s", "from starting a broker with empty topics to serving", 2),
        *(
            figure
            for name, ended in (("stop", "a stop"), ("kill", "kill -9"))
            for figure in (
                Figure(
                    f"lane_restart_{name}_serving", "s", f"from starting after {ended} to serving, lanes alternating", 2
                ),
                Figure(f"lane_restart_{name}_acquire", "s", "the same, to the answer to the first acquire", 2),
                Figure(f"lane_restart_{name}_memory", "MB", "VmHWM of the broker by then", 1),
            )
        ),
        Figure("idle_memory", "MB", "anonymous resident memory (RssAnon) of a broker that nobody uses", 1),
        Figure("idle_cpu", "%", "share of one core that an idle broker takes", 2),
    )
}
