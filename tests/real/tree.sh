#!/usr/bin/env bash
# find, du, ls and rm -rf over wide and deep trees; listings while others create and remove.
#
#     tests/real/tree.sh DIR [short|long]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

[ $# -ge 1 ] || die "usage: tests/real/tree.sh DIR [short|long]"
case ${2:-short} in
  short) wide=2500 deep=60 ;;
  long) wide=30000 deep=200 ;;
  *) die "short or long, not '$2'" ;;
esac
need find du rm perl
work_in "$1" tree
cd "$work"

is() { [ "$2" = "$3" ] || die "$1: $2, not $3"; }

# One wide folder, with names that sort and hash every way.
begin=$SECONDS
mkdir wide
perl -e 'for my $i (1 .. $ARGV[0]) { open my $f, ">", "wide/" . ($i % 3 ? "file-$i" : $i x 3) or die "$i: $!"; print $f "x" x ($i % 10) }' "$wide"
is "find in the wide folder" "$(find wide -type f | wc -l)" "$wide"
is "names listed once each" "$(ls -U wide | sort | uniq | wc -l)" "$wide"
is "bytes by find" "$(find wide -type f -printf '%s\n' | awk '{s += $1} END {print s}')" \
  "$(perl -e '$s += $_ % 10 for 1 .. $ARGV[0]; print $s' "$wide")"
is "empty files" "$(find wide -type f -empty | wc -l)" "$((wide / 10))"
is "glob" "$(cd wide && set -- file-* && echo $#)" "$((wide - wide / 3))"
say "  wide, $wide files: $((SECONDS - begin)) s"

# A deep path, near to PATH_MAX when long.
begin=$SECONDS
path=$work/deep
for ((i = 0; i < deep; i++)); do path=$path/level-$i; done
mkdir -p "$path" && echo bottom >"$path/file"
is "the deep file" "$(cat "$path/file")" bottom
is "find in the deep tree" "$(find deep -type d | wc -l)" "$((deep + 1))"
(cd "$path" && is "the way back up" "$(cd .. && basename "$(pwd -P)")" "level-$((deep - 2))")
is "by the way of dots" "$(stat -c %i "$path/../level-$((deep - 1))/file")" "$(stat -c %i "$path/file")"
say "  deep, $deep folders: $((SECONDS - begin)) s"

# du: what lies there, hard links counted once, holes not counted as data.
mkdir du && head -c 1000000 /dev/urandom >du/a && ln du/a du/b && truncate -s 100M du/hole && head -c 5000 /dev/urandom >du/c
is "du by length" "$(du -s --apparent-size -B1 --exclude=hole du | cut -f1)" "$((1005000 + $(stat -c %s du)))"
sync
blocks=$(du -B1 du/a | cut -f1)
[ "$blocks" -ge 1000000 ] && [ "$blocks" -lt 3000000 ] || die "a megabyte takes $blocks bytes by du"
hole=$(du -B1 du/hole | cut -f1)
[ "$hole" -lt 10000000 ] || die "a hole of 100 MB takes $hole bytes by du"
df "$work" | tail -n 1 | awk '{exit !($2 > 0 && $4 > 0)}' || die "df: no space at all: $(df "$work" | tail -n 1)"

# Numbers of links: one for each name; a folder has its own two and one a subfolder, or always one.
is "links of a hard link" "$(stat -c %h du/a)" 2
mkdir links links/1 links/2 links/3
count=$(stat -c %h links)
[ "$count" = 5 ] || [ "$count" = 1 ] || die "a folder with 3 subfolders has $count links"

# A listing goes on while entries come and go: each entry that was there throughout is seen exactly once.
begin=$SECONDS
mkdir busy
perl -e 'for my $i (1 .. $ARGV[0]) { open my $f, ">", "busy/stays-$i" or die }' "$((wide / 2))"
perl -e 'my $n = 0; while (! -e "stop") { for my $i (1 .. 50) { open my $f, ">", "busy/comes-$i" or die } unlink "busy/comes-$_" for 1 .. 50; $n++ }' &
churner=$!
for ((i = 0; i < 10; i++)); do
  seen=$(find busy -name 'stays-*' | sort | uniq -c | awk '$1 != 1 {twice++} END {print NR, twice + 0}')
  [ "$seen" = "$((wide / 2)) 0" ] || { touch stop && wait $churner && die "a busy listing: $seen (entries, twice), not $((wide / 2)) 0"; }
done
touch stop && wait $churner
say "  listings while busy: $((SECONDS - begin)) s"

# Removing while listing, as rm -rf does; then nothing is left.
begin=$SECONDS
perl -e 'opendir my $d, "busy" or die; my $n = 0; while (my $e = readdir $d) { next if $e =~ /^\.\.?$/; unlink "busy/$e" or die "$e: $!"; $n++ } exit($n == $ARGV[0] ? 0 : 1)' \
  "$((wide / 2))" || die "readdir with removals between misses entries"
rmdir busy || die "entries are left"
rm -rf wide deep du links
is "left over" "$(find . -mindepth 1 ! -name stop | wc -l)" 0
say "  removed: $((SECONDS - begin)) s"
say "tree: ok"
