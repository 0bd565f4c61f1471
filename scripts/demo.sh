#!/usr/bin/env bash
# usage: demo.sh <scratch directory>     runs the sample project there and shows a few rows of each output
set -euo pipefail
project=$1
root=$PWD
bin=$root/.venv/bin
rm -rf "$project"
mkdir -p "$(dirname "$project")"
cd "$(dirname "$project")"
show() { printf '\n$ %s\n' "$*"; "$bin/$1" "${@:2}"; }
show pz init "$(basename "$project")" --template sample
cd "$(basename "$project")"
show pz plan
show pz run --all
echo
"$bin/python" "$root/scripts/show_outputs.py" .
