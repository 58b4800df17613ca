#!/bin/bash
# Fuzzes one target for so many minutes of processor time, which on a busy machine take longer.
#
#   tests/fuzz/run.sh TARGET [MINUTES] [FOLDER]     tests/fuzz/run.sh config 10 /var/tmp/fuzz
#
# FOLDER/TARGET/corpus grows from run to run and begins as tests/fuzz/corpus/TARGET; an input that
# was found is in FOLDER/TARGET/findings. Takes clang. Ends with 0 where nothing was found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=${1:?usage: tests/fuzz/run.sh TARGET [MINUTES] [FOLDER]}
minutes=${2:-10}
folder=${3:-/tmp/millrace_fuzz}/$target

bazel build --config=fuzz "//tests/fuzz:${target}_fuzzer"
mkdir -p "$folder/corpus" "$folder/findings"
# A later build must not change what runs.
cp -fL "bazel-bin/tests/fuzz/${target}_fuzzer" "$folder/fuzzer"

# Sets `used` to the seconds that the children of this shell have taken. Not in a subshell, which has
# children of its own.
count_used() {
  times >"$folder/times"
  used=$(awk 'NR == 2 { gsub("s", ""); split($1, u, "m"); split($2, s, "m")
                        print int(u[1] * 60 + u[2] + s[1] * 60 + s[2]) }' "$folder/times")
}

count_used
begin=$used
while [ $((used - begin)) -lt $((minutes * 60)) ]; do
  nice -n 10 "$folder/fuzzer" -max_total_time=60 -max_len=16384 -rss_limit_mb=2048 -timeout=10 \
    -artifact_prefix="$folder/findings/" "$folder/corpus" "tests/fuzz/corpus/$target" \
    >"$folder/log" 2>&1 || {
    tail -n 40 "$folder/log" >&2
    echo "fuzz: $target: found something, see $folder/findings" >&2
    exit 1
  }
  count_used
done
echo "fuzz: $target: nothing found in $((used - begin)) s of processor time;" \
  "$(grep -ao 'cov: [0-9]*' "$folder/log" | tail -n 1)"
