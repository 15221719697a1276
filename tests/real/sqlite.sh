#!/usr/bin/env bash
# A database load with sqlite3, in each journal mode, against the same load in memory; then two writers at once.
#
#     tests/real/sqlite.sh DIR [short|long]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

[ $# -ge 1 ] || die "usage: tests/real/sqlite.sh DIR [short|long]"
case ${2:-short} in
  short) rows=20000 small=150 writers=2 each=60 ;;
  long) rows=100000 small=1000 writers=4 each=300 ;;
  *) die "short or long, not '$2'" ;;
esac
need sqlite3 sha256sum
work_in "$1" sqlite

# Everything follows from the row numbers, so that any two runs hold the same.
load() {
  cat <<END
CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT UNIQUE, weight INTEGER, body BLOB);
CREATE INDEX by_weight ON t(weight);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $rows)
  INSERT INTO t SELECT i, 'name-' || (i * 7919 % 1000003), i * 31 % 997,
    zeroblob(i % 50) || printf('%0*d', i % 300 + 1, i) FROM n;
COMMIT;
BEGIN; UPDATE t SET weight = weight + 1 WHERE id % 3 = 0; COMMIT;
BEGIN; DELETE FROM t WHERE id % 7 = 0; COMMIT;
BEGIN; UPDATE t SET weight = -1; ROLLBACK;
END
  # Many small transactions: each is a sync or several.
  seq 1 "$small" | sed 's/.*/INSERT INTO t VALUES(1000000000 + &, '"'small-&', &, 'x');/"
  echo 'VACUUM;'
}
dump='.dump'

{ load; echo "$dump"; } | sqlite3 -batch :memory: | sha256sum >"$scratch/expected"

for mode in delete truncate persist wal; do
  begin=$SECONDS
  file=$work/$mode.db
  said=$({ echo "PRAGMA journal_mode=$mode; PRAGMA synchronous=FULL; PRAGMA cache_size=-500;"; load; } | sqlite3 -batch "$file" | sed -n 1p)
  [ "$said" = "$mode" ] || die "journal mode $mode is refused: $said"
  [ "$(sqlite3 -batch "$file" 'PRAGMA integrity_check;')" = ok ] || die "$mode: integrity check fails"
  echo "$dump" | sqlite3 -batch "$file" | sha256sum | cmp -s - "$scratch/expected" || die "$mode: holds other rows than in memory"
  # A copy read as a plain file by another program is the same database.
  cp "$file" "$scratch/copy.db"
  [ "$(sqlite3 -batch "$scratch/copy.db" 'PRAGMA integrity_check;')" = ok ] || die "$mode: a copy fails the integrity check"
  say "  journal mode $mode: $((SECONDS - begin)) s"
done

# Mapped reads.
[ "$(sqlite3 -batch "$work/delete.db" 'PRAGMA mmap_size=268435456;' 'PRAGMA integrity_check;' | tail -n 1)" = ok ] ||
  die "mmap: integrity check fails"

# Several writers: locks and (in WAL) shared memory between processes. No increment may be lost.
for mode in delete wal; do
  file=$work/shared.$mode.db
  sqlite3 -batch "$file" "PRAGMA journal_mode=$mode; CREATE TABLE c(n INTEGER); INSERT INTO c VALUES(0); CREATE TABLE log(w, i);" >/dev/null
  pids=()
  for ((writer = 0; writer < writers; writer++)); do
    {
      echo ".timeout 60000"
      for ((i = 0; i < each; i++)); do
        echo "BEGIN IMMEDIATE; UPDATE c SET n = n + 1; INSERT INTO log VALUES($writer, $i); COMMIT;"
      done
    } | sqlite3 -batch -bail "$file" >"$scratch/writer.$writer" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || { cat "$scratch"/writer.* && die "$mode: a writer failed"; }; done
  got=$(sqlite3 -batch "$file" 'SELECT n, (SELECT count(*) FROM log), (SELECT count(DISTINCT w * 1000000 + i) FROM log) FROM c;')
  want=$((writers * each))
  [ "$got" = "$want|$want|$want" ] || die "$mode: $writers writers: $got, not $want|$want|$want"
  [ "$(sqlite3 -batch "$file" 'PRAGMA integrity_check;')" = ok ] || die "$mode: integrity check fails after $writers writers"
done
say "sqlite: ok"
