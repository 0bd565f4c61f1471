#!/usr/bin/env bash
# usage: system_packages.sh <package>...     installs Debian packages where this user may; says what is left out otherwise
set -u
missing=()
for package in "$@"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" = 0 ]; then as_root=()
elif sudo -n true 2>/dev/null; then as_root=(sudo -n)
else as_root=(false)
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 "$@" </dev/null >/dev/null; }
if command -v apt-get >/dev/null && { apt install -y --no-install-recommends "${missing[@]}" 2>/dev/null ||
  { apt update && apt install -y --no-install-recommends "${missing[@]}"; }; }; then
  exit 0
fi
echo "left out: the suites that need ${missing[*]} (not installed, and this user may not install Debian packages)" >&2
