# shellcheck shell=bash disable=SC2034,SC2154
# Sourced by the test scripts: where things are kept, how a tool or the program is found, how a result is said.
# Nothing here belongs to ShoalFS alone: every script under tests/ runs against any directory.

tests_root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo_root=$(dirname "$tests_root")
# Tools and sources that take long to fetch or build live outside the tree, so that `make clean` keeps them.
cache=${SHOALFS_TESTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/shoalfs-tests}
mkdir -p "$cache"

# No script ends without saying where: a command that fails unexpectedly is named.
set -E
say_where() { printf '%s: line %s: failed (%s): %s\n' "$1" "$2" "$3" "${4%%$'\n'*}" >&2; }
trap 'say_where "${BASH_SOURCE[0]}" "$LINENO" "$?" "$BASH_COMMAND"' ERR

say() { printf '%s\n' "$*"; }
die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# need COMMAND...: every command exists, or one message names the missing ones and what to do.
need() {
  local missing=() c
  for c in "$@"; do command -v "$c" >/dev/null || missing+=("$c"); done
  [ ${#missing[@]} -eq 0 ] || die "missing: ${missing[*]}. Run tests/prepare first"
}

# find_program: sets SHOAL to $SHOAL_BIN, or to what cargo builds, with its libraries beside it.
find_program() {
  SHOAL=${SHOAL_BIN:-}
  if [ -z "$SHOAL" ]; then
    need cargo
    cargo build --quiet --locked --profile quick -p shoal -p shoal-preload -p shoal-capi --manifest-path "$repo_root/Cargo.toml"
    SHOAL=${CARGO_TARGET_DIR:-$repo_root/target}/quick/shoal
  fi
  [ -x "$SHOAL" ] || die "no program: $SHOAL"
  SHOAL=$(realpath "$SHOAL")
}

# crate_tool NAME VERSION: prints the path of a program from crates.io, installing exactly that version when it is not
# there. A lock lets two runs ask at once; cargo checks the download against the registry's checksum.
crate_tool() {
  local name=$1 version=$2
  local root=$cache/tools/$name-$version
  if [ ! -x "$root/bin/$name" ]; then
    need cargo flock
    (
      flock 9
      [ -x "$root/bin/$name" ] || {
        say "installing $name $version into $root" >&2
        # From outside the repository, so that its toolchain file and target folder stay out of it.
        cd "$cache" && CARGO_TARGET_DIR="$cache/build" cargo install --quiet --locked --root "$root" \
          "$name" --version "=$version" >"$cache/$name.log" 2>&1 ||
          { tail -n 20 "$cache/$name.log" >&2; exit 1; }
      }
    ) 9>"$cache/$name.lock" || die "cannot install $name $version (log: $cache/$name.log)"
  fi
  printf '%s\n' "$root/bin/$name"
}

# crate_source NAME VERSION: prints the folder of a crate's unpacked source, fetched (checksum checked) by cargo.
crate_source() {
  local name=$1 version=$2
  local root=$cache/source/$name-$version
  if [ ! -d "$root/$name" ]; then
    need cargo flock
    (
      flock 9
      [ -d "$root/$name" ] || {
        say "fetching the source of $name $version" >&2
        rm -rf "$root.new" && mkdir -p "$root.new/src" && : >"$root.new/src/lib.rs"
        printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n%s = "=%s"\n' \
          "$name" "$version" >"$root.new/Cargo.toml"
        (cd "$root.new" && cargo vendor --quiet vendor >/dev/null 2>"$cache/$name.log") ||
          { cat "$cache/$name.log" >&2; exit 1; }
        mkdir -p "$root" && mv "$root.new/vendor/$name" "$root/$name" && rm -rf "$root.new"
      }
    ) 9>"$cache/$name.lock" || die "cannot fetch the source of $name $version (log: $cache/$name.log)"
  fi
  printf '%s\n' "$root/$name"
}

# c_program SOURCE: compiles one of our C programs and prints the path of the result.
c_program() {
  local source=$1 out
  out=$cache/bin/$(basename "$source" .c)-$(cksum <"$source" | cut -d' ' -f1)
  if [ ! -x "$out" ]; then
    need cc
    mkdir -p "$cache/bin"
    cc -std=gnu11 -O2 -Wall -Wextra -Werror -o "$out.$$" "$source" && mv "$out.$$" "$out"
  fi
  printf '%s\n' "$out"
}

# work_in DIR NAME: makes DIR/NAME.<pid> the script's own folder on the file system under test ($work), and a scratch
# folder elsewhere ($scratch); both are removed when the script ends. A failed run keeps them if KEEP=1.
work_in() {
  [ -d "$1" ] || die "no such directory: $1"
  work=$(cd "$1" && pwd)/$2.$$
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/shoalfs-$2.XXXXXX")
  mkdir "$work" || die "cannot write into $1"
  trap '_status=$?; cd /; [ "${KEEP:-0}" = 1 ] && [ $_status -ne 0 ] && say "kept: $work $scratch" >&2 ||
        rm -rf "$work" "$scratch"; exit $_status' EXIT
  trap 'exit 130' INT TERM HUP
}
