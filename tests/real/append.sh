#!/usr/bin/env bash
# Several processes append lines to one file with O_APPEND, through two mounts if MNT2 names a second one of the same
# file system: no line may be lost, torn or written over.
#
#     tests/real/append.sh DIR [short|long]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

[ $# -ge 1 ] || die "usage: tests/real/append.sh DIR [short|long]"
case ${2:-short} in
  short) lines=400 ;;
  long) lines=10000 ;;
  *) die "short or long, not '$2'" ;;
esac
need perl
work_in "$1" append
places=("$work")
if [ -n "${MNT2:-}" ]; then
  other=$MNT2/${work##*/}
  [ -d "$other" ] || die "$MNT2 does not show what $1 holds: not the same file system"
  places+=("$other")
fi
: >"$work/log"
pids=()
for writer in 0 1 2 3; do
  perl -MFcntl -e '
    my ($path, $writer, $lines) = @ARGV;
    sysopen(my $f, $path, O_WRONLY | O_APPEND) or die "$path: $!";
    for my $i (1 .. $lines) {
      my $line = "$writer $i " . ("abcdefgh" x ($i % 40)) . "\n";
      syswrite($f, $line) == length $line or die "short write: $!";
    }
    close $f or die "close: $!"' "${places[writer % ${#places[@]}]}/log" $writer "$lines" &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || die "a writer failed"; done
for place in "${places[@]}"; do
  perl -ne '
    /^(\d) (\d+) ((?:abcdefgh)*)$/ && length($3) == 8 * ($2 % 40) or die "line $. is torn: $_";
    $2 == ++$last[$1] or die "line $.: writer $1 wrote $2 after " . ($last[$1] - 1) . "\n";
    END { $last[$_] == '"$lines"' or die "writer $_: only $last[$_] lines\n" for 0 .. 3 }' "$place/log" ||
    die "appends went wrong, seen through $place"
done
say "append: ok (${#places[@]} mount$([ ${#places[@]} = 1 ] || echo s))"
