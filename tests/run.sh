#!/bin/bash
# Installs what the tests need, builds everything and runs every test. The last line is
# "N passed, N failed", counted in test cases; a test that does not build counts as one failed.
# Arguments go to `bazel test`: tests/run.sh --config=asan
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
  echo "$1" >&2
  echo "0 passed, 1 failed"
  exit 1
}

deploy/install_deps.sh test || fail "The packages that the tests need are not all installed."

report=$(mktemp)
trap 'rm -f "$report"' EXIT
bazel test --keep_going --curses=no --show_progress_rate_limit=30 "$@" //... 2>&1 | tee "$report"
bazel_status=${PIPESTATUS[0]}
test_logs=$(bazel info "$@" bazel-testlogs 2>/dev/null)

# Sums up the attributes of a test target's XML reports: "cases failed".
count_cases() {
  find -L "$1" -name test.xml -exec cat {} + 2>/dev/null | awk '
    /<testsuites? / && !inside {
      inside = /<testsuites /
      if (match($0, /[ ]tests="[0-9]+"/)) cases += substr($0, RSTART + 8, RLENGTH - 9)
      if (match($0, /[ ]failures="[0-9]+"/)) failed += substr($0, RSTART + 11, RLENGTH - 12)
      if (match($0, /[ ]errors="[0-9]+"/)) failed += substr($0, RSTART + 9, RLENGTH - 10)
      if (match($0, /[ ]disabled="[0-9]+"/)) cases -= substr($0, RSTART + 11, RLENGTH - 12)
    }
    /<\/testsuites>/ { inside = 0 }
    END { print cases + 0, failed + 0 }'
}

passed=0
failed=0
# Bazel's summary has one line a target: "//tests/build:toolchain_test   (cached) PASSED in 0.1s".
while read -r target rest; do
  path=${target#//}
  read -r cases failures < <(count_cases "$test_logs/${path/://}")
  case "$rest" in
    *"FAILED TO BUILD"* | *"NO STATUS"*) cases=0 failures=1 ;;
    *FAILED* | *TIMEOUT* | *INCOMPLETE*)
      # A process may fail though none of its cases did.
      [ "$failures" -gt 0 ] || failures=1
      [ "$cases" -ge "$failures" ] || cases=$failures
      ;;
    *) failures=0 ;;
  esac
  passed=$((passed + (cases > failures ? cases - failures : 0)))
  failed=$((failed + failures))
done < <(grep -E '^//[^ ]+ +.*(PASSED|FLAKY|FAILED|TIMEOUT|NO STATUS|INCOMPLETE)' "$report")

# Not everything built, though every test did.
[ "$bazel_status" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
