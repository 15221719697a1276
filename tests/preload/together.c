// Threads whose calls on one directory wait at once: on one position, beside closes, moves and removals. Prints what it finds.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <dirent.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 60, RECORD = 64 };

static void check(int is_right, const char *words) {
  if (is_right) return;
  printf("WRONG: %s: %s\n", words, strerror(errno));
  fflush(stdout);
  _exit(1);
}

static void together(void *(*each)(void *)) {
  pthread_t threads[THREADS];
  for (long n = 0; n < THREADS; n++) check(pthread_create(&threads[n], NULL, each, (void *)n) == 0, "pthread_create");
  for (int n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
}

// One position: each record is written once and read once, whole.
static int shared;
static atomic_int seen[THREADS][ROUNDS];

static void *writes(void *argument) {
  long writer = (long)argument;
  char record[RECORD];
  for (int round = 0; round < ROUNDS; round++) {
    memset(record, 0, sizeof record);
    snprintf(record, sizeof record, "%ld %d", writer, round);
    check(write(shared, record, sizeof record) == sizeof record, "write at the position");
  }
  return NULL;
}

static void *reads(void *argument) {
  (void)argument;
  char record[RECORD];
  int writer, round;
  ssize_t got;
  while ((got = read(shared, record, sizeof record)) == sizeof record) {
    check(sscanf(record, "%d %d", &writer, &round) == 2, "a record");
    check(writer >= 0 && writer < THREADS && round >= 0 && round < ROUNDS, "a record's numbers");
    atomic_fetch_add(&seen[writer][round], 1);
  }
  check(got == 0, "read at the position");
  return NULL;
}

static void one_position(void) {
  shared = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0644);
  check(shared >= 0, "open");
  together(writes);
  check(lseek(shared, 0, SEEK_END) == THREADS * ROUNDS * RECORD, "the end");
  check(lseek(shared, 0, SEEK_SET) == 0, "the beginning");
  together(reads);
  for (int writer = 0; writer < THREADS; writer++)
    for (int round = 0; round < ROUNDS; round++) check(seen[writer][round] == 1, "a record is read once");
  check(close(shared) == 0, "close");
  puts("one position");
}

// Long appends are whole.
enum { LONG_BYTES = 6 << 20 };

static void *appends(void *argument) {
  char *bytes = malloc(LONG_BYTES);
  memset(bytes, 'a' + (int)(long)argument, LONG_BYTES);
  int fd = open("appended", O_WRONLY | O_APPEND | O_CREAT, 0644);
  check(fd >= 0, "open to append");
  check(write(fd, bytes, LONG_BYTES) == LONG_BYTES, "a long append");
  check(close(fd) == 0, "close");
  free(bytes);
  return NULL;
}

static void long_appends(void) {
  together(appends);
  int fd = open("appended", O_RDONLY);
  char *bytes = malloc(LONG_BYTES);
  for (int n = 0; n < THREADS; n++) {
    size_t got = 0;
    while (got < LONG_BYTES) {
      ssize_t some = read(fd, bytes + got, LONG_BYTES - got);
      check(some > 0, "read what was appended");
      got += (size_t)some;
    }
    for (int byte = 1; byte < LONG_BYTES; byte++) check(bytes[byte] == bytes[0], "a long append is whole");
  }
  free(bytes);
  check(close(fd) == 0 && unlink("appended") == 0, "close and unlink");
  puts("long appends");
}

// Descriptors are closed while others use them, which may get any answer. The next open of the number is another's.
static atomic_int current = -1;
static atomic_int is_over;

static void *uses(void *argument) {
  char bytes[16];
  struct stat st;
  if ((long)argument == 0) {
    char name[32];
    for (int round = 0; round < 5 * ROUNDS; round++) {
      snprintf(name, sizeof name, "used.%d", round % 7);
      int fd = open(name, O_RDWR | O_CREAT, 0644);
      check(fd >= 0, "open one to be closed");
      check(write(fd, "0123456789", 10) == 10, "write to one that is used");
      atomic_store(&current, fd);
      usleep(100);
      check(lseek(fd, 0, SEEK_CUR) == 10, "the position of one that is used");
      check(pread(fd, bytes, sizeof bytes, 0) == 10 && memcmp(bytes, "0123456789", 10) == 0, "the bytes of one that is used");
      check(close(fd) == 0, "close one that is used");
      if (round % 3 == 0) check(unlink(name) == 0, "unlink one that is used");
    }
    atomic_store(&is_over, 1);
    return NULL;
  }
  for (int round = 0; !atomic_load(&is_over); round++) {
    int fd = atomic_load(&current);
    if (pread(fd, bytes, 10, 0) < 0 || fstat(fd, &st) < 0 || (round % 64 == 0 && fsync(fd) < 0)) usleep(10);
  }
  return NULL;
}

static void closes(void) {
  together(uses);
  puts("closes beside uses");
}

// A directory that is opened while it is moved to and fro leads to its own file, and another of its name to none.
static ino_t first;

static void *moves(void *argument) {
  long thread = (long)argument;
  if (thread == 0) {
    for (int round = 0; round < ROUNDS; round++) {
      check(rename("dir.a", "dir.b") == 0, "rename");
      check(mkdir("dir.a", 0755) == 0, "mkdir");
      int fd = open("dir.a/other", O_WRONLY | O_CREAT, 0644);
      check(fd >= 0 && close(fd) == 0, "a file in another directory of that name");
      check(unlink("dir.a/other") == 0 && rmdir("dir.a") == 0, "rmdir");
      check(rename("dir.b", "dir.a") == 0, "rename back");
    }
    atomic_store(&is_over, 1);
    return NULL;
  }
  while (!atomic_load(&is_over)) {
    int dir = open("dir.a", O_RDONLY | O_DIRECTORY);
    if (dir < 0) {
      check(errno == ENOENT, "open of a directory that is moved");
      continue;
    }
    struct stat st, own;
    int is_first = fstat(dir, &own) == 0 && own.st_ino == first;
    if (is_first)
      check(fstatat(dir, "mine", &st, 0) == 0 && st.st_size == 4, "the file of a directory that is moved");
    else
      check(fstatat(dir, "mine", &st, 0) < 0, "no file of another directory of that name");
    check(close(dir) == 0, "close of a directory");
  }
  return NULL;
}

static void moved(void) {
  check(mkdir("dir.a", 0755) == 0, "mkdir");
  int fd = open("dir.a/mine", O_WRONLY | O_CREAT, 0644);
  check(fd >= 0 && write(fd, "mine", 4) == 4 && close(fd) == 0, "a file in a directory");
  struct stat own;
  check(stat("dir.a", &own) == 0, "stat of a directory");
  first = own.st_ino;
  atomic_store(&is_over, 0);
  together(moves);
  check(unlink("dir.a/mine") == 0 && rmdir("dir.a") == 0, "the directory is there at the end");
  puts("opens beside moves");
}

// Names of one directory, made, listed and removed at once.
static void *names(void *argument) {
  char name[64];
  for (int round = 0; round < ROUNDS; round++) {
    snprintf(name, sizeof name, "many/%ld.%d", (long)argument, round);
    FILE *one = fopen(name, "w");
    check(one != NULL && fputs(name, one) >= 0 && fclose(one) == 0, "a file of many");
    if (round % 20 == 19) {
      DIR *dir = opendir("many");
      int own = 0;
      char prefix[16];
      snprintf(prefix, sizeof prefix, "%ld.", (long)argument);
      for (struct dirent *entry; (entry = readdir(dir));) own += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
      check(closedir(dir) == 0 && own == round + 1, "a listing has all names that its thread has made");
    }
  }
  for (int round = 0; round < ROUNDS; round++) {
    snprintf(name, sizeof name, "many/%ld.%d", (long)argument, round);
    struct stat st;
    check(stat(name, &st) == 0 && st.st_size == (off_t)strlen(name), "a stat of many");
    check(unlink(name) == 0, "an unlink of many");
  }
  return NULL;
}

int main(void) {
  one_position();
  long_appends();
  closes();
  moved();
  check(mkdir("many", 0755) == 0, "mkdir");
  together(names);
  check(rmdir("many") == 0, "all names are gone");
  puts("many names");
  return 0;
}
