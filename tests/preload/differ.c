// Random calls in the current directory, each with its result on a line: two file systems that behave alike print the same.
//
//     differ SEED CALLS [no-links]
//
// Left out is what the documents say differs: a child's use of a file that has no name any more, and times that are not set.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OPEN_MAX_ = 12, NAMES = 9, BYTES = 20000 };
static const char *names[NAMES] = {"a", "b", "c", "d/a", "d/b", "d/e/a", "d", "d/e", "l"};
static uint64_t state;
static int has_links = 1;
static struct { int fd; uint64_t ino; int is_named; } opened[OPEN_MAX_];
static unsigned char bytes[BYTES];

static uint64_t draw(uint64_t below) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (state * 0x2545F4914F6CDD1DULL >> 32) % below;
}
static const char *name(void) { return names[draw(NAMES)]; }
static uint64_t hash(const void *data, size_t len) {
  uint64_t sum = 14695981039346656037ULL;
  for (size_t at = 0; at < len; at++) sum = (sum ^ ((const unsigned char *)data)[at]) * 1099511628211ULL;
  return sum;
}
static void fill(size_t len) {
  for (size_t at = 0; at < len; at++) bytes[at] = (unsigned char)draw(256);
}
static void say(const char *call, const char *on, long done) {
  printf("%s %s = %ld %s\n", call, on, done, done < 0 ? strerrorname_np(errno) : "");
}
static void show(const char *call, const char *on, int done, const struct stat *st) {
  say(call, on, done);
  if (done == 0)
    printf("  %o %ld %ld %ld\n", st->st_mode, S_ISDIR(st->st_mode) ? 0 : (long)st->st_nlink,
           S_ISDIR(st->st_mode) ? 0 : (long)st->st_size, (long)st->st_uid);
}
// A name is about to lead elsewhere: descriptors of its file may have none after that.
static void loses(const char *path) {
  struct stat st;
  if (lstat(path, &st) == 0)
    for (int at = 0; at < OPEN_MAX_; at++)
      if (opened[at].ino == (uint64_t)st.st_ino) opened[at].is_named = 0;
}
static int slot(void) { return (int)draw(OPEN_MAX_); }
static void keep(int fd) {
  int at = slot();
  struct stat st;
  if (opened[at].fd >= 0) close(opened[at].fd);
  opened[at].fd = fd;
  opened[at].is_named = fstat(fd, &st) == 0;
  opened[at].ino = opened[at].is_named ? st.st_ino : 0;
  printf("  in %d\n", at);
}

static void open_one(void) {
  static const int access[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR};
  static const int more[] = {0, O_CREAT, O_CREAT, O_CREAT | O_EXCL, O_TRUNC, O_APPEND, O_CREAT | O_APPEND, O_CREAT | O_TRUNC,
                             O_DIRECTORY, O_NOFOLLOW};
  const char *on = name();
  int flags = access[draw(4)] | more[draw(10)];
  if ((flags & O_ACCMODE) == O_RDONLY) flags &= ~O_TRUNC;
  int fd = open(on, flags | O_CLOEXEC, 0600 + draw(0200));
  printf("open %s %o = %s\n", on, flags, fd < 0 ? strerrorname_np(errno) : "");
  if (fd >= 0) keep(fd);
}

static void on_descriptor(void) {
  int at = slot(), fd = opened[at].fd;
  char on[16];
  snprintf(on, sizeof on, "%d", at);
  size_t len = draw(4) ? draw(600) : draw(BYTES);
  off_t offset = draw(3) ? (off_t)draw(3000) : (off_t)draw(60000);
  struct stat st;
  long done;
  switch (draw(15)) {
    case 0: fill(len); say("write", on, write(fd, bytes, len)); break;
    case 1: fill(len); say("pwrite", on, pwrite(fd, bytes, len, offset)); break;
    case 2: done = read(fd, bytes, len); say("read", on, done); if (done > 0) printf("  %lx\n", hash(bytes, done)); break;
    case 3: done = pread(fd, bytes, len, offset); say("pread", on, done); if (done > 0) printf("  %lx\n", hash(bytes, done)); break;
    case 4: say("seek", on, lseek(fd, offset, SEEK_SET)); break;
    case 5: say("seek end", on, (done = -(long)draw(100), fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) ? 0 : lseek(fd, done, SEEK_END)); break;
    case 6: say("ftruncate", on, ftruncate(fd, offset)); break;
    case 7: done = fstat(fd, &st); show("fstat", on, (int)done, &st); break;
    case 8: say("close", on, close(fd)); opened[at].fd = -1; opened[at].ino = 0; break;
    case 9: done = dup(fd); say("dup", on, done < 0 ? -1 : 0); if (done >= 0) { int named = opened[at].is_named; uint64_t ino = opened[at].ino; keep((int)done); for (int i = 0; i < OPEN_MAX_; i++) if (opened[i].fd == done) { opened[i].is_named = named; opened[i].ino = ino; } } break;
    case 10: say("flags", on, fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND)); break;
    case 11: say("append", on, fcntl(fd, F_SETFL, draw(2) ? O_APPEND : 0)); break;
    case 12: say("fsync", on, fsync(fd)); break;
    case 13: {
      fill(len);
      struct iovec parts[3] = {{bytes, len / 3}, {bytes + len / 3, len / 3}, {bytes, len / 5}};
      say("writev", on, writev(fd, parts, 3));
      break;
    }
    case 14: say("fchmod", on, fchmod(fd, 0600 + draw(0200))); break;
  }
}

static int by_name(const void *one, const void *other) { return strcmp(*(char *const *)one, *(char *const *)other); }

static void list(const char *path) {
  DIR *dir = opendir(path);
  say("opendir", path, dir ? 0 : -1);
  if (!dir) return;
  char *found[64];
  int count = 0;
  struct dirent *entry;
  while ((entry = readdir(dir)) && count < 64) {
    found[count] = malloc(300);
    snprintf(found[count++], 300, "%s:%d", entry->d_name, entry->d_type);
  }
  qsort(found, count, sizeof *found, by_name);
  for (int at = 0; at < count; at++) printf("  %s", found[at]), free(found[at]);
  puts("");
  closedir(dir);
}

static void on_path(void) {
  const char *on = name(), *to = name();
  char into[4096];
  struct stat st;
  int done;
  FILE *stream;
  switch (draw(16)) {
    case 0: say("mkdir", on, mkdir(on, 0755)); break;
    case 1: loses(on); say("rmdir", on, rmdir(on)); break;
    case 2: loses(on); say("unlink", on, unlink(on)); break;
    case 3: case 4: loses(to); printf("to %s ", to); say("rename", on, rename(on, to)); break;
    case 5: say("symlink", on, symlink(to, on)); break;
    case 6: { long got = readlink(on, into, sizeof into); say("readlink", on, got); if (got > 0) printf("  %.*s\n", (int)got, into); break; }
    case 7: if (has_links) { printf("to %s ", to); say("link", on, link(on, to)); } break;
    case 8: say("chmod", on, chmod(on, 0600 + draw(0200))); break;
    case 9: {
      struct timespec times[2] = {{(long)draw(1000000), 5}, {(long)draw(1000000), (long)draw(1000000000)}};
      done = utimensat(AT_FDCWD, on, times, draw(2) ? 0 : AT_SYMLINK_NOFOLLOW);
      say("utimens", on, done);
      if (done == 0 && stat(on, &st) == 0) printf("  %ld\n", st.st_mtim.tv_sec < 2000000 ? st.st_mtim.tv_sec : 0);
      break;
    }
    case 10: say("access", on, access(on, (int)draw(8))); break;
    case 11: say("truncate", on, truncate(on, (off_t)draw(30000))); break;
    case 12: done = draw(2) ? stat(on, &st) : lstat(on, &st); show("stat", on, done, &st); break;
    case 13: list(on); break;
    case 14:
      stream = fopen(on, draw(2) ? "w" : "a+");
      say("fopen", on, stream ? 0 : -1);
      if (stream) { for (int at = 0; at < 50; at++) fprintf(stream, "%d ", at); say("ftell", on, ftell(stream)); say("fclose", on, fclose(stream)); }
      break;
    case 15:
      stream = fopen(on, "r");
      say("fopen", on, stream ? 0 : -1);
      if (stream && fgets(into, sizeof into, stream)) printf("  %lx\n", hash(into, strlen(into)));
      if (stream) fclose(stream);
      break;
  }
}

// A child uses the descriptors that it inherits; or another program does.
static void in_child(void) {
  int at = slot(), fd = opened[at].fd;
  if (fd < 0 || !opened[at].is_named) return;
  int is_program = draw(2), flags = fcntl(fd, F_GETFL);
  size_t len = draw(300);
  fill(len);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    if (is_program) {
      dup2(fd, 1);
      execl("/bin/echo", "echo", "from a program", (char *)NULL);
      _exit(9);
    }
    _exit(write(fd, bytes, len) == (ssize_t)len ? 0 : 1);
  }
  int status;
  waitpid(child, &status, 0);
  printf("child %d %d %o = %d\n", at, is_program, flags & O_ACCMODE, WEXITSTATUS(status));
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  state = strtoull(arguments[1], NULL, 10) * 0x9E3779B97F4A7C15ULL + 1;
  long calls = strtol(arguments[2], NULL, 10);
  has_links = count < 4;
  // The paths of a child's complaints are its own.
  if (!freopen("/dev/null", "w", stderr)) return 2;
  for (int at = 0; at < OPEN_MAX_; at++) opened[at].fd = -1;
  mkdir("d", 0755);
  for (long call = 0; call < calls; call++) {
    printf("%ld: ", call);
    uint64_t kind = draw(100);
    if (kind < 20) open_one();
    else if (kind < 65) on_descriptor();
    else if (kind < 98) on_path();
    else in_child();
  }
  for (int at = 0; at < NAMES; at++) {
    int fd = open(names[at], O_RDONLY | O_NOFOLLOW);
    uint64_t sum = 0;
    long len, total = 0;
    while (fd >= 0 && (len = read(fd, bytes, sizeof bytes)) > 0) sum = sum * 31 + hash(bytes, len), total += len;
    printf("end %s %d %ld %lx\n", names[at], fd >= 0, total, sum);
    if (fd >= 0) close(fd);
  }
  list(".");
  return 0;
}
