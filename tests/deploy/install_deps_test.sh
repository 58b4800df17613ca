#!/bin/bash
# deploy/install_deps.sh on machines that stand-ins for dpkg-query, apt-get, sudo and id describe.
set -euo pipefail

script=$PWD/deploy/install_deps.sh
bin=$TEST_TMPDIR/bin
calls=$TEST_TMPDIR/calls
mkdir -p "$bin"
for program in bash env cat; do ln -s "$(command -v $program)" "$bin/"; done

stand_in() {
  printf '#!/bin/bash\n%s\n' "$2" >"$bin/$1"
  chmod +x "$bin/$1"
}
fail() { echo "FAILED: $1" >&2 && exit 1; }
run() {
  : >"$calls"
  status=0
  output=$(PATH=$bin "$script" "$@" 2>&1) || status=$?
}

stand_in apt-get "echo \"apt-get \$*\" >>$calls"
stand_in id "echo 0"

# All is there: silent, and apt-get is left alone.
stand_in dpkg-query 'printf installed'
run
[ "$status" -eq 0 ] && [ -z "$output" ] && [ ! -s "$calls" ] || fail "not silent: $output"

# Something is missing: named, with the reason, and nothing else is installed.
stand_in dpkg-query '[ "${@: -1}" = libsqlite3-dev ] && exit 1; printf installed'
run
[ "$status" -eq 0 ] || fail "exit status $status"
[[ $output == *"To build Millrace, 1 packages are missing"*libsqlite3-dev* ]] || fail "said: $output"
grep -q "install .*libsqlite3-dev" "$calls" || fail "not installed"
! grep -q libgrpc "$calls" || fail "installed what was there"

# A package that was removed but left its configuration is missing.
stand_in dpkg-query '[ "${@: -1}" = g++ ] && printf config-files || printf installed'
run
grep -q "install .*g++" "$calls" || fail "config-files counted as installed"

# The tests need more than the build.
stand_in dpkg-query '[ "${@: -1}" = libgtest-dev ] && exit 1; printf installed'
run build
[ ! -s "$calls" ] || fail "the build does not need GoogleTest"
run test
grep -q "install .*libgtest-dev" "$calls" || fail "the tests need GoogleTest"

# Not root: through sudo, or with a sentence that says what an administrator would run.
stand_in id "echo 1000"
run test
[ "$status" -eq 1 ] && [[ $output == *"apt-get install libgtest-dev"* ]] || fail "said: $output"
stand_in sudo "echo sudo >>$calls; exec \"\$@\""
run test
[ "$status" -eq 0 ] && grep -q sudo "$calls" || fail "sudo was not used"

run nonsense
[ "$status" -eq 2 ] && [[ $output == usage:* ]] || fail "accepted nonsense"
