#!/bin/bash
# deploy/loss_curve.sh on a stream of events.
set -euo pipefail
fail() { echo "FAILED: $1" >&2 && exit 1; }

{
  echo '{"sequence":"1","stateChange":{"from":"QUEUED","to":"PREPARING"}}'
  for step in $(seq 1 200); do
    echo "{\"sequence\":\"$((step + 1))\",\"attempt\":1,\"step\":{\"step\":\"$step\",\"loss\":$((600 - 2 * step)).25,\"tokens\":\"512\"}}"
  done
  echo '{"sequence":"300","evaluation":{"step":"200","loss":9999.0}}'
} >"$TEST_TMPDIR/events"

curve=$(deploy/loss_curve.sh <"$TEST_TMPDIR/events")
echo "$curve"
[ "$(wc -l <<<"$curve")" -eq 12 ] || fail "the curve is not 10 rows, an axis and its labels"
[[ $(head -1 <<<"$curve") == *"595.25 |*"* ]] || fail "the first column is not the highest"
[[ $(sed -n 10p <<<"$curve") =~ "202.25 |"\ +\*+$ ]] || fail "the last column is not the lowest"
[[ $(tail -1 <<<"$curve") == *"1 "*"step 200" ]] || fail "the steps are not labelled"
! grep -q 9999 <<<"$curve" || fail "an evaluation was taken for a step"

# Resumed at step 2: told again, counted once.
resumed=$(printf '{"step":{"step":"%s","loss":%s}}\n' 1 5.0 2 4.0 3 3.0 2 4.5 3 3.5 | deploy/loss_curve.sh)
[[ $(sed -n 10p <<<"$resumed") == "    3.50 |  *" ]] || fail "steps told twice: $resumed"

status=0
output=$(deploy/loss_curve.sh </dev/null) || status=$?
[ "$status" -eq 1 ] && [ "$output" = "no steps yet" ] || fail "an empty stream: $output"
