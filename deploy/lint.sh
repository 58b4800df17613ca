#!/bin/bash
# Checks our code with clang-format and clang-tidy (.clang-format, .clang-tidy).
#
#   deploy/lint.sh [--fix] [--format] [--changed] [FILE...]
#
#   --fix      repair what can be repaired
#   --format   clang-format alone: seconds rather than minutes
#   --changed  only files that differ from the branch main
#   FILE       only these
#
# clang-tidy passes over files that were clean before and have not changed since, nor has any header
# of ours that they include (remembered under ${XDG_CACHE_HOME:-~/.cache}/millrace/lint).
set -euo pipefail

# Checks one file; exported for xargs.
tidy_one() {
  local file=$1 stamp
  # Our headers among what it includes, and everything that the verdict depends on besides.
  stamp=$cache/$({
    clang-tidy --version
    cat .clang-tidy
    echo "${flags[*]}"
    g++ -MM "${flags[@]}" "$file" | tr -d '\\\n' | cut -d: -f2- | xargs sha256sum
  } | sha256sum | cut -c1-40)
  [ ! -e "$stamp" ] || return 0
  clang-tidy --quiet ${fix:+--fix} "$file" -- "${flags[@]}" 2> >(grep -vE \
    '^[0-9]+ warnings? (generated|and)|warnings treated as errors|^Suppressed|^Use -header' >&2) ||
    return 1
  touch "$stamp"
}

if [ "${1:-}" = --tidy-one ]; then
  read -ra flags <<<"$tidy_flags"
  tidy_one "$2"
  exit
fi

fix= format_only= changed=
files=()
for argument in "$@"; do
  case "$argument" in
    --fix) fix=1 ;;
    --format) format_only=1 ;;
    --changed) changed=1 ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \?//;p}' "$0" && exit 0 ;;
    -*) echo "lint: unknown option $argument (try --help)" >&2 && exit 2 ;;
    *) files+=("$(realpath "$argument")") ;;
  esac
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."

deploy/install_deps.sh lint
if [ ${#files[@]} -eq 0 ]; then
  mapfile -t files < <(
    if [ -n "$changed" ]; then
      git diff --name-only --diff-filter=d main --
      git ls-files --others --exclude-standard
    else
      git ls-files --cached --others --exclude-standard
    fi | sort -u | grep -E '\.(cc|h)$' || true
  )
fi
[ ${#files[@]} -gt 0 ] || { echo "lint: no files" && exit 0; }

status=0
mode=(--dry-run -Werror)
[ -z "$fix" ] || mode=(-i)
clang-format "${mode[@]}" "${files[@]}" || status=1

if [ -z "$format_only" ]; then
  # clang-tidy reads generated headers.
  mapfile -t generated < <(bazel query --noshow_progress 'kind(genrule, //...)' 2>/dev/null)
  bazel build --noshow_progress --ui_event_filters=-info,-stdout,-stderr "${generated[@]}"
  bazel_bin=$(bazel info bazel-bin 2>/dev/null)
  export tidy_flags="-std=c++20 -I. -isystem $bazel_bin/proto
    -isystem $bazel_bin/third_party/googleapis $(pkg-config --cflags-only-other spdlog libhwy)"
  tidy_flags=$(tr -s '\n ' ' ' <<<"$tidy_flags")
  export cache=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/lint
  export fix
  mkdir -p "$cache"

  # Headers are checked along with the sources that include them (HeaderFilterRegex).
  printf '%s\0' "${files[@]}" | { grep -z '\.cc$' || true; } |
    xargs -0 --no-run-if-empty --max-procs="$(nproc)" --max-args=1 deploy/lint.sh --tidy-one || status=1
fi

[ "$status" -eq 0 ] && echo "lint: ${#files[@]} files are clean"
exit "$status"
