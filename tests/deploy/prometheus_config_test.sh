#!/bin/bash
# The example configuration is one that Prometheus accepts.
set -euo pipefail
if ! command -v promtool; then
  echo "SKIPPED: promtool is not installed"
  exit 0
fi
promtool check config deploy/prometheus/prometheus.yml
