#!/bin/bash
# Installs the packages that Millrace is built from. Debian 12 and Ubuntu 24.04.
#
#   deploy/install_deps.sh          what building and running takes
#   deploy/install_deps.sh test     what the tests take as well
#   deploy/install_deps.sh lint     what deploy/lint.sh takes as well
#
# Quick and silent where nothing is missing.
set -euo pipefail

build_packages=(
  bazel-bootstrap g++ pkg-config                                  # the build
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc          # the API
  libprotobuf-dev libabsl-dev libssl-dev zlib1g-dev
  libcli11-dev libyaml-cpp-dev nlohmann-json3-dev libspdlog-dev   # command line, job files, logs
  libsqlite3-dev                                                  # the job store
  prometheus-cpp-dev libcivetweb-dev                              # metrics over HTTP
  libdnnl-dev libhwy-dev                                          # matrix products, portable SIMD
  libicu-dev libpcre2-dev                                         # tokenizers: Unicode, patterns
)
test_packages=(libgtest-dev libgmock-dev libbenchmark-dev)
lint_packages=(clang-format clang-tidy git)

packages=("${build_packages[@]}")
purpose="build Millrace"
case "${1:-build}" in
  build) ;;
  test) packages+=("${test_packages[@]}") purpose+=" and test it" ;;
  lint) packages+=("${lint_packages[@]}") purpose+=" and check its style" ;;
  *)
    echo "usage: $0 [build|test|lint]" >&2
    exit 2
    ;;
esac

if ! command -v apt-get dpkg-query >/dev/null; then
  echo "install_deps: this system has no apt-get; install these packages' equivalents by hand:" >&2
  echo "  ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install_deps: not root and no sudo; ask an administrator to run:" >&2
    echo "  apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "To $purpose, ${#missing[@]} packages are missing; installing them with apt-get${as_root:+ (sudo)}:"
echo "  ${missing[*]}"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q=2 update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get -q=2 install --yes --no-install-recommends "${missing[@]}" >/dev/null
