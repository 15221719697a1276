#!/usr/bin/env bash
# fio with verification: what was written is read back and its checksums compared, also by a second process later.
#
#     tests/real/fio.sh DIR [short|long]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

[ $# -ge 1 ] || die "usage: tests/real/fio.sh DIR [short|long]"
case ${2:-short} in
  short) size=24m files=4 odd=300 ;;
  long) size=128m files=32 odd=1500 ;;
  *) die "short or long, not '$2'" ;;
esac
need fio
work_in "$1" fio

# job NAME OPTION...: writes and verifies, then verifies once more in a new process.
job() {
  local name=$1 begin=$SECONDS again
  shift
  for again in 0 1; do
    (cd "$scratch" && fio --name="$name" --directory="$work" --verify=crc32c --verify_fatal=1 --verify_dump=0 \
      --randseed=4711 --fallocate=none --group_reporting "$@" $([ $again = 0 ] || echo --verify_only=1) \
      >"$scratch/$name.log" 2>&1) || { tail -n 20 "$scratch/$name.log" && die "$name fails"; }
    ! grep -qiE 'verify: bad|verify failed|err= *[1-9]' "$scratch/$name.log" || { cat "$scratch/$name.log" && die "$name: wrong data"; }
  done
  rm -f "$work/$name".*
  say "  $name: $((SECONDS - begin)) s"
}

job sequential-psync --ioengine=psync --rw=write --bs=128k --size=$size --end_fsync=1
job random-psync --ioengine=psync --rw=randwrite --bs=4k --size=$size --end_fsync=1
# Blocks that begin and end anywhere in a page or a strip (fio 3.33 needs a size of whole blocks).
job random-odd-small --ioengine=psync --rw=randwrite --bs=1001 --size=$((1001 * 2000))
job random-odd-large --ioengine=psync --rw=randwrite --bs=70001 --size=$((70001 * odd))
job sequential-mmap --ioengine=mmap --rw=write --bs=64k --size=$size --end_fsync=1
job random-mmap --ioengine=mmap --rw=randwrite --bs=4k --size=$size --end_fsync=1
job fsync-each --ioengine=psync --rw=randwrite --bs=4k --size=2m --fsync=4
job many-files --ioengine=psync --rw=randwrite --bs=8k --nrfiles=$files --filesize=512k --numjobs=2
job direct --ioengine=psync --direct=1 --rw=randwrite --bs=16k --size=$size
say "fio: ok"
