#!/usr/bin/env bash
# Mapped files: writers and readers through mappings, read(2), and other processes.
#
#     tests/real/mmap.sh DIR [short|long]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

[ $# -ge 1 ] || die "usage: tests/real/mmap.sh DIR [short|long]"
case ${2:-short} in
  short) megabytes=8 ;;
  long) megabytes=256 ;;
  *) die "short or long, not '$2'" ;;
esac
need cmp dd
program=$(c_program "$tests_root/real/mmap.c")
work_in "$1" mmap
"$program" "$work" "$megabytes"
# A program run from the file system: text is mapped, and so are the libraries it loads.
cp /bin/ls "$work/ls" && "$work/ls" / >/dev/null
# A library loaded from there.
library=$(find /lib /usr/lib -name 'libz.so.1' 2>/dev/null | sed -n 1p)
if [ -n "$library" ]; then
  cp "$library" "$work/libz.so.1"
  LD_LIBRARY_PATH=$work perl -e 'exit 0'
fi
say "mmap: ok"
