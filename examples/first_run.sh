#!/bin/sh
# The whole of tidelog in a minute: start a broker, produce, consume, replay a range of time, acknowledge messages one by
# one and give one up, kill the broker with SIGKILL, start it again on the same folder, see that every message is still
# there and nothing that was acknowledged comes again, and bring back the one that was given up.
#
#     PATH="$PWD/.venv/bin:$PATH" sh examples/first_run.sh
set -eu

folder=$(mktemp -d)
broker=

start_broker() {
    : > "$folder/ready"
    tidelog serve --data-dir "$folder/data" --listen 127.0.0.1:0 --log-level warning > "$folder/ready" &
    broker=$!
    until grep -q 'serving on' "$folder/ready"; do
        kill -0 "$broker" 2> /dev/null || { echo "the broker did not start" >&2; exit 1; }
        sleep 0.1
    done
    TIDELOG_URL=$(sed -n 's/.*serving on //p' "$folder/ready")
    export TIDELOG_URL
}

stop() {
    [ -z "$broker" ] || kill -9 "$broker" 2> /dev/null || true
    wait
    rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT TERM

say() {
    printf '\n== %s\n' "$1"
}

say "start a broker"
start_broker
tidelog ping

say "create a topic and produce five messages"
tidelog topics create orders --partitions 3
printf '%s\n' 'o-1:created' 'o-2:created' 'o-1:paid' 'o-3:created' 'o-1:shipped' |
    tidelog produce orders --key-separator : --header source=first_run --receipts

say "consume them"
tidelog consume orders --output json

say "replay the last hour"
tidelog replay orders --from -1h --to now | sort > "$folder/before"
cat "$folder/before"

say "give one up as a worker of the group billing, and acknowledge the others"
token=$(tidelog consume orders --group billing --mode queue --settle none --limit 1 --output json |
    sed 's/.*"lease_token":"\([^"]*\)".*/\1/')
tidelog settle "$token" reject --error "no such customer"
tidelog consume orders --group billing --limit 4
until [ "$(tidelog dlq list orders --output json | wc -l)" -eq 1 ]; do sleep 0.1; done
tidelog dlq list orders

say "kill -9 the broker and start it again on the same folder"
kill -9 "$broker"
wait "$broker" 2> /dev/null || true
start_broker

say "replay again"
tidelog replay orders --from -1h --to now | sort > "$folder/after"
cat "$folder/after"
cmp "$folder/before" "$folder/after"
[ "$(wc -l < "$folder/after")" -eq 5 ]

say "bring back what was given up, and acknowledge it"
tidelog dlq redrive orders
tidelog consume orders --group billing --limit 1 --timeout 10s > "$folder/redriven"
cat "$folder/redriven"
[ "$(wc -l < "$folder/redriven")" -eq 1 ]
tidelog groups describe billing

say "all five messages survived"
