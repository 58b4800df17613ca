#!/bin/bash
# The unit is one that systemd accepts, and stays hardened.
set -euo pipefail
unit=deploy/systemd/millraced.service
for setting in NoNewPrivileges=yes ProtectSystem=strict IPAddressDeny=any KillMode=process OOMPolicy=continue; do
  grep -qx "$setting" "$unit" || { echo "FAILED: $setting is gone" >&2 && exit 1; }
done
if ! command -v systemd-analyze; then
  echo "SKIPPED: systemd-analyze is not installed"
  exit 0
fi
# The program need not be installed for its unit to be checked.
sed 's|^ExecStart=[^ ]*|ExecStart=/bin/true|' "$unit" >"$TEST_TMPDIR/millraced.service"
systemd-analyze verify --man=no "$TEST_TMPDIR/millraced.service"
