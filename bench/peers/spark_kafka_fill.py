"""Send the rows to Kafka: `python -m bench.peers.spark_kafka_fill ADDRESS COUNT SIZE PARTITIONS`, in a process of its
own since confluent-kafka may live in another Python."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..spark.rows import TOPIC, Rows


def main(arguments: Sequence[str]) -> int:
    """Make the topic and send; 1 when a message was not stored."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    address, count, size, partitions = arguments[0], *map(int, arguments[1:4])
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(TOPIC, partitions, 1)]).values():
        future.result(60)
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    for partition, keys, values in Rows(count, size, partitions).chunks():
        for key, value in zip(keys, values, strict=True):
            while True:
                try:
                    producer.produce(TOPIC, value, key=key, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)
    return 1 if producer.flush(120) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
