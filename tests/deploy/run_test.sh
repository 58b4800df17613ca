#!/bin/bash
# tests/run.sh counts right, with a stand-in for Bazel that ran what each case below says.
set -euo pipefail

root=$TEST_TMPDIR/repository
bin=$TEST_TMPDIR/bin
export LOGS=$TEST_TMPDIR/testlogs SUMMARY=$TEST_TMPDIR/summary
mkdir -p "$root/tests" "$root/deploy" "$bin"
cp tests/run.sh "$root/tests/"
printf '#!/bin/bash\nexit ${INSTALL_STATUS:-0}\n' >"$root/deploy/install_deps.sh"
cat >"$bin/bazel" <<'EOF'
#!/bin/bash
case "$1" in
  test) cat "$SUMMARY" && exit "$BAZEL_STATUS" ;;
  info) echo "$LOGS" ;;
esac
EOF
chmod +x "$root/deploy/install_deps.sh" "$bin/bazel"

# Leaves the report of a test target: its path, then the XML.
report() {
  mkdir -p "$LOGS/$1"
  cat >"$LOGS/$1/test.xml"
}
# check WHAT BAZEL_STATUS EXPECTED_STATUS EXPECTED_LAST_LINE
check() {
  local status=0 last
  last=$(BAZEL_STATUS=$2 PATH=$bin:$PATH "$root/tests/run.sh" 2>&1 | tail -1; exit "${PIPESTATUS[0]}") ||
    status=$?
  if [ "$status" -ne "$3" ] || [ "$last" != "$4" ]; then
    echo "FAILED: $1: exit status $status, last line: $last" >&2
    exit 1
  fi
}

report engine/base/buffer_test <<'EOF'
<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="5" failures="0" disabled="1" errors="0" time="0.1" name="AllTests">
  <testsuite name="Buffer" tests="5" failures="0" disabled="1" skipped="0" errors="0" time="0.1">
  </testsuite>
</testsuites>
EOF
report tests/deploy/shell_test <<'EOF'
<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="tests/deploy/shell_test" tests="1" failures="0" errors="0">
    <testcase name="tests/deploy/shell_test" status="run"></testcase>
  </testsuite>
</testsuites>
EOF
report server/broken_test <<'EOF'
<testsuites tests="7" failures="2" disabled="0" errors="0" name="AllTests">
</testsuites>
EOF
report server/sharded_test/shard_1_of_2 <<<'<testsuites tests="2" failures="0" disabled="0" errors="0"></testsuites>'
report server/sharded_test/shard_2_of_2 <<<'<testsuites tests="3" failures="0" disabled="0" errors="0"></testsuites>'

passing='//engine/base:buffer_test                          (cached) PASSED in 0.1s
//tests/deploy:shell_test                                   PASSED in 0.3s'

echo "$passing" >"$SUMMARY"
check "all pass; what is disabled does not count" 0 0 "5 passed, 0 failed"

echo "$passing
//server:sharded_test   PASSED in 0.1s" >"$SUMMARY"
check "shards add up" 0 0 "10 passed, 0 failed"

echo "$passing
//server:broken_test                                      FAILED in 0.2s
  /root/testlogs/server/broken_test/test.log" >"$SUMMARY"
check "two of seven cases fail" 3 1 "10 passed, 2 failed"

echo "$passing
//server:absent_test                              FAILED TO BUILD" >"$SUMMARY"
check "a test that does not build" 1 1 "5 passed, 1 failed"

echo "//tests/deploy:shell_test    FAILED in 0.1s" >"$SUMMARY"
check "a process that fails though its cases pass" 3 1 "0 passed, 1 failed"

echo "//tests/deploy:shell_test    TIMEOUT in 60.0s" >"$SUMMARY"
check "a test that never ends" 3 1 "0 passed, 1 failed"

echo "$passing" >"$SUMMARY"
check "something that is no test does not build" 1 1 "5 passed, 1 failed"

echo "ERROR: no such package" >"$SUMMARY"
check "nothing runs" 1 1 "0 passed, 1 failed"

INSTALL_STATUS=1 check "the packages cannot be installed" 0 1 "0 passed, 1 failed"
