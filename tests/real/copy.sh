#!/usr/bin/env bash
# Copies real trees in by `cp -a`, `rsync -a` and `tar`, and compares every byte, mode, owner, time (to the
# nanosecond), hard link, symbolic link, special file and extended attribute; then copies one tree back out.
#
#     tests/real/copy.sh DIR [short|long]
#
# short: a prepared tree of odd things, a part of /usr/include and one large file.
# long:  the whole of /usr/include, the Rust toolchain's libraries and (where installed) its documentation.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
. "$tests_root/real/compare.sh"

[ $# -ge 1 ] || die "usage: tests/real/copy.sh DIR [short|long]"
length=${2:-short}
need cp rsync tar diff find perl getfattr setfattr truncate
work_in "$1" copy

# -a and the links and attributes it leaves out. Times to the nanosecond: by default rsync leaves a folder's or a
# link's time alone when only the fraction of the second differs.
rsync_whole=(-aHAX --modify-window=-1)

# What no installed tree has: odd names, modes, owners, times, holes, links in and out of folders, special files.
prepare_odd() {
  mkdir "$1" && cd "$1"
  mkdir -p plain/deep/er "with blank" $'new\nline' 'Überfluß' special modes links sparse times xattrs empty
  printf 'x' >"plain/deep/er/one byte"
  : >plain/empty
  head -c 4096 /dev/urandom >plain/page
  head -c 65537 /dev/urandom >plain/strip-and-one
  head -c 3000001 /dev/urandom >plain/three-megabytes
  printf 'a' >"$(printf 'n%.0s' {1..255})"
  printf 'b' >$'new\nline/tab\tand\\backslash'
  local mode
  for mode in 0000 0400 0644 0755 0777 1644 2755 4755 7777; do : >"modes/$mode" && chmod $mode "modes/$mode"; done
  mkdir modes/sticky modes/setgid && chmod 1777 modes/sticky && chmod 2770 modes/setgid
  if [ "$(id -u)" = 0 ]; then
    echo owned >modes/owned && chown 1234:5678 modes/owned
    mkdir modes/dir-owned && chown 65534:65534 modes/dir-owned
    mknod special/null c 1 3 && mknod special/loop b 7 200 && chown 1:2 special/null
  fi
  mkfifo -m 0640 special/fifo
  ln plain/page links/hard-1 && ln plain/page links/hard-2 && ln plain/page "with blank/hard 3"
  ln -s ../plain/page links/relative && ln -s /etc/hostname links/absolute && ln -s nowhere links/dangling
  ln -s "$(printf 'long/%.0s' {1..500})" links/long && ln links/relative links/hard-to-symlink
  ln -s ../plain links/to-directory && ln -s loop links/loop
  truncate -s 50M sparse/hole-only
  truncate -s 20M sparse/islands
  printf 'island' | dd of=sparse/islands bs=1 seek=7000000 conv=notrunc status=none
  printf 'x' | dd of=sparse/islands bs=1 seek=19999999 conv=notrunc status=none
  for time in '1970-01-01 00:00:00.000000001 UTC' '1969-12-31 23:59:58 UTC' '2026-01-02 03:04:05.123456789 UTC' \
    '2106-02-07 06:28:16.999999999 UTC'; do
    : >"times/$time" && touch -d "$time" "times/$time"
  done
  ln -s x times/link && touch -h -d '2001-02-03 04:05:06.700000001 UTC' times/link
  local n
  for n in 1 2 3 4 5 6 7 8 9; do setfattr -n "user.shoal.$n" -v "value $n" plain/page; done
  : >xattrs/many && for n in {1..30}; do setfattr -n "user.n$n" -v "$n" xattrs/many; done
  : >xattrs/long && setfattr -n user.long -v "$(head -c 2000 /dev/zero | tr '\0' v)" xattrs/long
  : >xattrs/binary && setfattr -n user.binary -v 0x00ff0a0d20e282ac xattrs/binary
  : >xattrs/empty && setfattr -n user.empty xattrs/empty
  setfattr -n user.on.directory -v yes empty
  mkdir times/folder && touch -d '2011-11-11 11:11:11.111111111 UTC' times/folder
  # What tar does not carry, by its nature or its faults: sockets, links of special files, fractions before 1970.
  mkdir beyond-tar
  perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "beyond-tar/socket", Listen => 1) or die $!'
  mkfifo beyond-tar/fifo && ln beyond-tar/fifo beyond-tar/fifo-again
  : >beyond-tar/early && touch -d '1969-12-31 23:59:58.5 UTC' beyond-tar/early
  cd - >/dev/null
}

# A part of a tree, the same each time: the first FILES files by name.
part_of() {
  local tree=$1 files=$2
  mkdir "$3"
  (cd "$tree" && find . -type f -print0 | LC_ALL=C sort -z | sed -z -n "1,${files}p" |
    tar --null -T - -cf -) | tar -C "$3" -xf -
}

# copies SOURCE NAME METHOD...: copies it by each method, and compares.
copies() {
  local source=$1 name=$2 method to begin without
  shift 2
  for method in "$@"; do
    to=$work/$name.$method
    begin=$SECONDS
    case $method in
      cp) cp -a "$source" "$to" ;;
      rsync) rsync "${rsync_whole[@]}" "$source/" "$to/" ;;
      tar)
        mkdir "$to"
        tar -C "$source" --format=posix --xattrs --xattrs-include='*' --exclude=./beyond-tar -cf - . |
          tar -C "$to" --xattrs --xattrs-include='*' --same-owner --warning=no-timestamp -xpf -
        ;;
    esac
    say "  $name by $method: copied in $((SECONDS - begin)) s"
    begin=$SECONDS
    without=()
    [ "$method" != tar ] || without=(beyond-tar)
    manifest "$source" "${without[@]}" >"$scratch/manifest"
    manifest "$to" "${without[@]}" >"$scratch/manifest.to"
    same_manifest "$scratch/manifest" "$scratch/manifest.to" "$name by $method"
    same_bytes "$source" "$to" "$name by $method"
    if [ "$method" = rsync ]; then
      rsync "${rsync_whole[@]}" --checksum --dry-run --itemize-changes --delete "$source/" "$to/" >"$scratch/rsync"
      [ ! -s "$scratch/rsync" ] || { head "$scratch/rsync" && die "$name: rsync would still change something"; }
    fi
    say "  $name by $method: compared in $((SECONDS - begin)) s"
  done
}

prepare_odd "$scratch/odd"
copies "$scratch/odd" odd cp rsync tar

# And back out, by a program reading through the file system under test.
cp -a "$work/odd.cp" "$scratch/back"
manifest "$scratch/odd" >"$scratch/manifest"
manifest "$scratch/back" >"$scratch/manifest.to"
same_manifest "$scratch/manifest" "$scratch/manifest.to" "odd, back out"
same_bytes "$scratch/odd" "$scratch/back" "odd, back out"
rm -rf "$work"/odd.*

sysroot=$(rustc --print sysroot 2>/dev/null || true)
[ -d "$sysroot/lib" ] || die "no Rust toolchain: rustc --print sysroot names no folder with lib"
case $length in
  short)
    part_of /usr/include 1200 "$scratch/include"
    copies "$scratch/include" include cp rsync tar
    large=$(find "$sysroot/lib" -type f -size +8M -size -80M | LC_ALL=C sort | sed -n 1p)
    mkdir "$scratch/large" && cp -p "$large" "$scratch/large/"
    copies "$scratch/large" large cp
    ;;
  long)
    copies /usr/include include cp rsync tar
    rm -rf "$work"/include.*
    copies "$sysroot/lib" toolchain-lib cp rsync tar
    rm -rf "$work"/toolchain-lib.*
    # Tens of thousands of small files, where the toolchain's documentation is installed; else its registry of sources.
    for many in "$sysroot/share/doc" "${CARGO_HOME:-$HOME/.cargo}/registry/src"; do
      if [ -d "$many" ] && [ "$(find "$many" -type f | wc -l)" -ge 10000 ]; then
        copies "$many" many cp
        rm -rf "$work"/many.*
        break
      fi
    done
    ;;
  *) die "short or long, not '$length'" ;;
esac
say "copy: ok"
