# Unchanged programs in the directory $1, with their output; the same wherever that directory lies.
#
#     bash tests/preload/programs.sh DIR PROGRAMS [KIND]
#
# PROGRAMS holds our own compiled ones (threads, streams, children, files, passed). A ShoalFS and a composed directory without a mount have no FIFO.
set -u
umask 022
mkdir -p "$1/work" && cd "$1/work" || exit 1
programs=$2

echo "== a shell, with redirections and pipes"
echo hello >a && cat a && (echo one; /bin/echo two) >b && cat <b && echo three >>b && /bin/echo four >>b && wc -l <b
for i in 1 2 3 4 5; do echo "$i"; done | sort -r >c && while read -r line; do echo "<$line>"; done <c
exec 3>d && echo to three >&3 && exec 3>&- && cat d && { echo out; echo err >&2; } >e 2>&1 && sort e
cat <<END >f
a document
END
cat f && test -s f && test ! -e nothing && [ f -nt /usr ] && echo tested
pwd | sed 's|.*/||' && mkdir -p deep/er && cd deep/er && /bin/pwd | sed 's|.*/\(.*/.*\)|\1|' && echo x >../y && cd ../.. && ls deep
case ${3:-} in shoal | composed) false ;; esac && (mkfifo pipe && (echo through >pipe &) && cat pipe && rm pipe) | grep -v through
ln -s a link && readlink link && cat link && ls -l link | cut -c1 && rm link

echo "== files: cp, mv, tar, dd, sort, grep, find, split"
cp -a /usr/include/asm-generic include && diff -r /usr/include/asm-generic include && echo copied
tar --sort=name -cf x.tar include && mkdir t && tar xf x.tar -C t && diff -r include t/include && tar czf - include | tar tzf - | wc -l
mv t/include moved && rmdir t && find moved -name '*.h' | sort | cksum && grep -rl O_ moved | sort | cksum
find moved -type f -newer a -print | wc -l && find moved -type f -size +4k | sort
dd if=x.tar of=dd bs=12345 count=7 skip=1 status=none && cksum <dd && dd if=/dev/zero of=dd bs=1k seek=3 count=2 conv=notrunc status=none && cksum <dd
truncate -s 100000 dd && stat -c '%s %F %a' dd && chmod 640 dd && stat -c %a dd && touch -d '2020-02-02 02:02:02 UTC' dd && stat -c %Y dd
sort include/unistd.h | cksum && split -b 1000 include/unistd.h part. && cat part.* | cmp - include/unistd.h && echo joined && rm part.*
ls -a | sort | head -n 4 && ls -d m* && du -a moved | wc -l && rm -rf moved && ls -d m* 2>&1 | sed 's/.*: //'
sed -i 's/hello/goodbye/' a && cat a && head -c 3 a | od -c | head -n 1 && cat a b c | md5sum && cksum x.tar | cut -d' ' -f2

echo "== names that children change, and appends of several"
for i in 1 2 3 4 5; do
  echo old >r; /bin/rm r; echo new >r; cat r
  echo a >r; echo b >r2; /bin/mv r2 r; echo c >>r; cat r
  sed -i s/b/d/ r; read -r x <r; echo "$x"
  /bin/rm r; [ ! -e r ] && mkdir rd && /bin/rmdir rd && ! echo x 2>/dev/null >rd/x && echo gone
done
exec 5>>log; echo A1 >&5; /bin/sh -c 'echo B1 >>log'; echo A2 >&5; /bin/sh -c 'echo B2 >>log'; echo A3 >&5; exec 5>&-; cat log
# Two that hold a lock together and then want it alone.
python3 - <<'END'
import fcntl, os, sys
pids = []
for n in range(2):
    pids.append(os.fork())
    if pids[-1] == 0:
        f = open('upgrade', 'a')
        fcntl.flock(f, fcntl.LOCK_SH)
        open(f'has.{n}', 'w').close()
        while not (os.path.exists('has.0') and os.path.exists('has.1')): pass
        fcntl.flock(f, fcntl.LOCK_EX)
        os._exit(0)
for pid in pids: os.waitpid(pid, 0)
print('both had it alone')
END
# Appends of several processes at once to one container may overlap.
[ "${3:-}" = container ] && echo 100 || {
  for i in 1 2 3 4; do (for j in $(seq 25); do /bin/echo "$i" "$j" >>app; done) & done
  wait && wc -l <app
}

echo "== python"
python3 - <<'END'
import glob, mmap, os, shutil, sqlite3, subprocess, tempfile, threading, time
with open('t.txt', 'w') as f:
    for i in range(1000): f.write(f'line {i}\n')
print(sum(len(line) for line in open('t.txt')))
with open('t.txt', 'r+b') as f:
    f.seek(100); f.write(b'XYZ'); f.seek(0, 2); print(f.tell()); f.truncate(5000)
print(os.stat('t.txt').st_size, os.path.realpath('t.txt').rsplit('/', 1)[1])
with open('t.txt', 'rb') as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m: print(m[98:106])
db = sqlite3.connect('x.db')
db.execute('create table a(x, y)'); db.executemany('insert into a values(?, ?)', [(i, str(i)) for i in range(1000)])
db.commit(); print(db.execute('select sum(x) from a').fetchone()); db.close()
print(subprocess.run(['python3', '-c', 'import sqlite3; print(sqlite3.connect("x.db").execute("pragma integrity_check").fetchone())'], capture_output=True).stdout)
os.makedirs('p/q/r'); open('p/q/r/s', 'w').write('1'); print(sorted(glob.glob('p/**', recursive=True)))
shutil.copytree('p', 'p2'); print(sorted(os.listdir('p2'))); shutil.rmtree('p2')
print(subprocess.run(['cat', 't.txt'], capture_output=True).stdout[:10])
with open('out', 'w') as o: subprocess.run(['echo', 'via subprocess'], stdout=o)
print(open('out').read())
with tempfile.NamedTemporaryFile(dir='.') as t: t.write(b'abc'); t.flush(); print(os.path.getsize(t.name))
os.rename('out', 'out2'); print(os.path.exists('out'), os.path.exists('out2'))
fd = os.open('.', os.O_RDONLY); print(sorted(os.listdir(fd)) == sorted(os.listdir('.'))); os.fchdir(fd); os.close(fd)
try: open('nothing/here')
except OSError as error: print(error.errno)
def work(n):
    with open(f'thread.{n}', 'w') as f: f.write(str(n) * 1000)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
time.sleep(0.1); print(sum(os.path.getsize(f'thread.{n}') for n in range(8)), len(os.listdir('/proc/self/task')))
END
sqlite3 -batch y.db 'create table t(x); insert into t values(1); insert into t values(2); select sum(x) from t; vacuum; pragma integrity_check;'

# A ShoalFS has no locks between processes yet.
[ "${3:-}" = shoal ] && locked=15 || {
  sqlite3 -batch l.db 'create table c(n); insert into c values(0);'
  for writer in 1 2 3; do
    (for i in 1 2 3 4 5; do sqlite3 -batch -cmd '.timeout 60000' l.db 'update c set n = n + 1;'; done) &
  done
  wait
  locked=$(sqlite3 -batch l.db 'select n from c')
}
echo "$locked"

echo "== a build"
cat >h.c <<'END'
#include <stdio.h>
int other(void);
int main(int count, char **arguments) {
  FILE *made = fopen("made", "w");
  fprintf(made, "%s %d %d\n", arguments[0], count, other());
  fclose(made);
  return remove("nothing") == 0;
}
END
echo 'int other(void) { return 7; }' >g.c
printf 'all: h\nh: h.o g.o\n\tcc -o h h.o g.o\n%%.o: %%.c\n\tcc -c $<\n' >Makefile
make -s -j2 && ./h argument && cat made && make -s -q && echo 'up to date'
cc -shared -fPIC -o other.so g.c && python3 -c 'import ctypes; print(ctypes.CDLL("./other.so").other())'
printf '#!/bin/sh\necho script "$0" "$1"\n' >script && chmod +x script && ./script argument && PATH=$PWD:$PATH script again | sed 's| /.*/| |'
env -i PATH="$PATH" sh -c 'cat made; echo cleared >cleared' && cat cleared

echo "== git"
git init -q repo && cd repo && git config user.email a@b && git config user.name n
cp ../h.c . && git add . && git commit -qm one && echo more >>h.c && git commit -qam two && git fsck && git log --format=%s && git status --short
cd .. && git clone -q repo repo2 && diff repo/h.c repo2/h.c && echo cloned

echo "== threads, children, streams"
"$programs/threads" && "$programs/streams" >t && cat t changed reopened by-fstream && "$programs/streams" && cat changed reopened
mkdir own.1 own.2 && (cd own.1 && "$programs/children" "${3:-}") && (cd own.2 && "$programs/files" && "$programs/passed")
cd .. && rm -rf work && ls
