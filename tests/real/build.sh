#!/usr/bin/env bash
# Builds C programs inside with `make -j2`, and runs what was built.
#
#     tests/real/build.sh DIR [short|long]
#
# short: Lua, four of its releases (130 C files). long: OpenSSL too (4,000 files, its own Configure and Makefile).
# The sources come from crates.io with their checksums, and are kept outside the tree.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

[ $# -ge 1 ] || die "usage: tests/real/build.sh DIR [short|long]"
length=${2:-short}
need make cc ar perl sha256sum
work_in "$1" build

build_lua() {
  local source version
  source=$(crate_source lua-src 547.0.0)
  cp -r "$source" "$work/lua"
  # The package holds the library alone: a program that runs one line, and a Makefile.
  cat >"$work/lua/script.c" <<'END'
#include <stdio.h>
#include "lua.h"
#include "lauxlib.h"
#include "lualib.h"
int main(int argc, char **argv) {
    lua_State *state = luaL_newstate();
    luaL_openlibs(state);
    int failed = argc != 2 || luaL_dostring(state, argv[1]);
    if (failed) fprintf(stderr, "%s\n", lua_tostring(state, -1));
    lua_close(state);
    return failed;
}
END
  cat >"$work/lua/Makefile" <<'END'
versions := $(patsubst %/lua.h,%,$(wildcard lua-*/lua.h))
sources := $(foreach v,$(versions),$(wildcard $v/*.c))
objects := $(sources:.c=.o)
all: $(versions:=/lua)
%.o: %.c
	$(CC) -O1 -DLUA_USE_POSIX -MMD -c -o $@ $<
define program
$1/lua: script.c $1/liblua.a
	$$(CC) -O1 -DLUA_USE_POSIX -I$1 -o $$@ $$^ -lm
$1/liblua.a: $(filter $1/%,$(objects))
	$$(AR) rcs $$@ $$^
endef
$(foreach v,$(versions),$(eval $(call program,$v)))
-include $(objects:.o=.d)
END
  make -C "$work/lua" -j2 >"$scratch/lua.log" 2>&1 || { tail -n 20 "$scratch/lua.log" && die "Lua does not build"; }
  # Times must be right for make to find nothing to do, and what one header touches to be built again.
  make -C "$work/lua" -q || die "make would build Lua again: times are wrong"
  sleep 0.05 && touch "$work"/lua/lua-5.4.*/lvm.h
  if make -C "$work/lua" -q; then die "make does not see a changed header: times are wrong"; fi
  make -C "$work/lua" -j2 >"$scratch/lua.log" 2>&1 || die "Lua does not build again"
  for version in "$work"/lua/lua-*/lua; do
    [ "$("$version" 'local t = {} for i = 1, 1e5 do t[i] = i end print(string.format("%d", #t))')" = 100000 ] ||
      die "$version gives wrong results"
  done
  say "  Lua: $(find "$work/lua" -name '*.o' | wc -l) objects"
}

build_openssl() {
  local source sum
  source=$(crate_source openssl-src 300.5.0+3.5.0)
  cp -r "$source/openssl" "$work/openssl"
  cd "$work/openssl"
  ./Configure linux-x86_64 no-tests no-docs no-module -O0 >"$scratch/configure.log" 2>&1 ||
    { tail -n 20 "$scratch/configure.log" && die "OpenSSL's Configure fails"; }
  make -j2 >"$scratch/make.log" 2>&1 || { tail -n 20 "$scratch/make.log" && die "OpenSSL does not build"; }
  make -q build_sw >/dev/null 2>&1 || make -j2 build_sw 2>&1 | tee "$scratch/again.log" | grep -E '^(gcc|cc) ' | head -n 3 || true
  ! grep -qE '^(gcc|cc) ' "$scratch/again.log" 2>/dev/null || die "make would compile again: times are wrong"
  sum=$(LD_LIBRARY_PATH=. apps/openssl dgst -sha256 -r libcrypto.so.3 | cut -d' ' -f1)
  [ "$sum" = "$(sha256sum libcrypto.so.3 | cut -d' ' -f1)" ] || die "the built openssl computes a wrong checksum"
  say "  OpenSSL: $(find . -name '*.o' | wc -l) objects"
}

case $length in
  short) build_lua ;;
  long) build_lua && build_openssl ;;
  *) die "short or long, not '$length'" ;;
esac
say "build: ok"
