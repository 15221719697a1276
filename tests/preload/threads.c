// Threads and forked children that write one file each at its place, read back by the parent. Prints what it finds.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, CHILDREN = 4, ROUNDS = 40, PIECE = 4096 };
static int file;

static void check(int is_right, const char *words) {
  if (!is_right) {
    printf("WRONG: %s: %s\n", words, strerror(errno));
    exit(1);
  }
}

static void write_all(int fd, long writer, long writers) {
  char piece[PIECE];
  memset(piece, 'a' + (int)writer, sizeof piece);
  for (long round = 0; round < ROUNDS; round++)
    check(pwrite(fd, piece, sizeof piece, (round * writers + writer) * PIECE) == PIECE, "pwrite");
}

static void *thread(void *argument) {
  long writer = (long)argument;
  write_all(file, writer, THREADS);
  char name[64];
  for (int round = 0; round < 20; round++) {
    snprintf(name, sizeof name, "own.%ld.%d", writer, round);
    FILE *own = fopen(name, "w");
    check(own != NULL, "fopen");
    fprintf(own, "%ld", writer);
    check(fclose(own) == 0, "fclose");
    struct stat st;
    check(stat(name, &st) == 0 && st.st_size == 1, "stat");
    check(unlink(name) == 0, "unlink");
  }
  return NULL;
}

static void read_back(int fd, long writers) {
  char piece[PIECE];
  for (long at = 0; at < ROUNDS * writers; at++) {
    check(pread(fd, piece, sizeof piece, at * PIECE) == PIECE, "pread");
    for (int byte = 0; byte < PIECE; byte++) check(piece[byte] == 'a' + at % writers, "a byte");
  }
}

int main(void) {
  file = open("threads", O_RDWR | O_CREAT | O_TRUNC, 0644);
  check(file >= 0, "open");
  pthread_t threads[THREADS];
  for (long writer = 0; writer < THREADS; writer++) pthread_create(&threads[writer], NULL, thread, (void *)writer);
  for (int writer = 0; writer < THREADS; writer++) pthread_join(threads[writer], NULL);
  read_back(file, THREADS);
  puts("threads wrote");

  for (long child = 0; child < CHILDREN; child++) {
    pid_t pid = fork();
    check(pid >= 0, "fork");
    if (pid == 0) {
      int own = open("children", O_WRONLY | O_CREAT, 0644);
      check(own >= 0, "open in a child");
      write_all(own, child, CHILDREN);
      check(close(own) == 0, "close in a child");
      _exit(0);
    }
  }
  for (int child = 0; child < CHILDREN; child++) {
    int status;
    wait(&status);
    check(status == 0, "a child");
  }
  int children = open("children", O_RDONLY);
  read_back(children, CHILDREN);
  puts("children wrote");

  // One description, shared over fork: each line is whole, and none is lost.
  int shared = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0644);
  for (int child = 0; child < CHILDREN; child++)
    if (fork() == 0) {
      char line[16];
      for (int round = 0; round < 25; round++) {
        int len = snprintf(line, sizeof line, "%d.%02d\n", child, round);
        check(write(shared, line, len) == len, "a shared write");
      }
      _exit(0);
    }
  while (wait(NULL) > 0) continue;
  check(lseek(shared, 0, SEEK_CUR) == CHILDREN * 25 * 5, "the shared position");
  check(write(shared, "end\n", 4) == 4, "a write after");
  char all[1024];
  check(pread(shared, all, sizeof all, 0) == CHILDREN * 25 * 5 + 4, "the shared size");
  int lines = 0;
  for (char *at = all; at < all + CHILDREN * 25 * 5; at += 5) lines += at[1] == '.' && at[4] == '\n';
  printf("%d shared lines\n", lines);

  // A descriptor's flags and copies.
  int copy = dup(shared);
  check(lseek(copy, 7, SEEK_SET) == 7 && lseek(shared, 0, SEEK_CUR) == 7, "a copy's position");
  check(fcntl(shared, F_SETFL, O_APPEND) == 0 && (fcntl(copy, F_GETFL) & O_APPEND), "a copy's flags");
  check(write(copy, "x", 1) == 1 && lseek(copy, 0, SEEK_CUR) == CHILDREN * 25 * 5 + 5, "an append");
  check(close(shared) == 0 && write(copy, "y", 1) == 1 && close(copy) == 0, "a copy after a close");
  errno = 0;
  check(write(copy, "z", 1) == -1 && errno == EBADF, "a write after the close");
  int kept = open("gone", O_RDWR | O_CREAT | O_TRUNC, 0644);
  check(write(kept, "kept", 4) == 4 && unlink("gone") == 0, "a removal");
  check(pread(kept, all, 8, 0) == 4 && !memcmp(all, "kept", 4), "a read after the removal");
  close(kept);
  puts("descriptors agree");
  return 0;
}
