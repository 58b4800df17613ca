#!/bin/bash
# Checks our code with clang-format and clang-tidy (.clang-format, .clang-tidy).
#
#   deploy/lint.sh [--fix] [--format] [--changed] [FILE...]
#
#   --fix      repair what can be repaired
#   --format   clang-format alone: seconds rather than minutes
#   --changed  only files that differ from the branch main
#   FILE       only these
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fix= format_only= changed=
files=()
for argument in "$@"; do
  case "$argument" in
    --fix) fix=1 ;;
    --format) format_only=1 ;;
    --changed) changed=1 ;;
    --help) sed -n '2,/^set/{/^set/d;s/^# \?//;p}' "$0" && exit 0 ;;
    -*) echo "lint: unknown option $argument (try --help)" >&2 && exit 2 ;;
    *) files+=("$argument") ;;
  esac
done

deploy/install_deps.sh lint
if [ ${#files[@]} -eq 0 ]; then
  if [ -n "$changed" ]; then
    mapfile -t files < <(
      { git diff --name-only --diff-filter=d main -- && git ls-files --others --exclude-standard; } |
        sort -u | grep -E '\.(cc|h)$' || true
    )
  else
    mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.cc' '*.h')
  fi
fi
[ ${#files[@]} -gt 0 ] || { echo "lint: no files" && exit 0; }

# Runs a command over files, some at a time on each core.
over() {
  local per_call=$1
  shift
  xargs -0 --max-procs="$(nproc)" --max-args="$per_call" "$@"
}

status=0
mode=(--dry-run -Werror)
[ -z "$fix" ] || mode=(-i)
printf '%s\0' "${files[@]}" | over 16 clang-format "${mode[@]}" || status=1

if [ -z "$format_only" ]; then
  # clang-tidy reads generated headers.
  mapfile -t generated < <(bazel query --noshow_progress 'kind(genrule, //...)' 2>/dev/null)
  bazel build --noshow_progress --ui_event_filters=-info,-stdout,-stderr "${generated[@]}"

  # Headers are checked along with the sources that include them (HeaderFilterRegex).
  mapfile -t sources < <(printf '%s\n' "${files[@]}" | grep '\.cc$' || true)
  flags=(
    -std=c++20 -Wall -Wextra -Wno-sign-compare -Wno-unused-parameter
    -Wno-missing-field-initializers -I.
    -isystem "$(bazel info bazel-bin 2>/dev/null)/proto"
    -isystem "$(bazel info bazel-bin 2>/dev/null)/third_party/googleapis"
  )
  for define in $(pkg-config --cflags-only-other spdlog libhwy); do flags+=("$define"); done
  tidy=(--quiet)
  [ -z "$fix" ] || tidy+=(--fix)
  [ ${#sources[@]} -eq 0 ] ||
    printf '%s\0' "${sources[@]}" | over 1 bash -c '
      # Arguments: tidy options, "--", compiler flags, the file. Speaks only of our own code.
      clang-tidy "${@: -1}" "${@:1:$#-1}" 2> >(grep -vE "warnings? (generated|and)|^Suppressed" >&2)
    ' tidy "${tidy[@]}" -- "${flags[@]}" || status=1
fi

[ "$status" -eq 0 ] && echo "lint: ${#files[@]} files are clean"
exit "$status"
