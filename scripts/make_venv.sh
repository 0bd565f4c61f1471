#!/usr/bin/env bash
# usage: make_venv.sh <directory> <requirements>     creates or refreshes a virtual environment with pz and the pinned tools
set -euo pipefail
directory=$1 requirements=$2
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed, $PYTHON is older" >&2; exit 1; }
if ! "$PYTHON" -c 'import ensurepip' 2>/dev/null; then
  scripts/system_packages.sh python3-venv
fi
echo "installing pz and the pinned tools into $directory: a minute or two"
"$PYTHON" -m venv "$directory"
"$directory/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$requirements"
"$directory/bin/pip" install --quiet --disable-pip-version-check --no-deps --editable .
touch "$directory/.ready"
