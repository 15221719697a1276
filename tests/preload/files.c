// Streams that are reopened and closed, copies that fail, formatted writes: their results, the same in any directory.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int __dprintf_chk(int fd, int flag, const char *format, ...);
int __vdprintf_chk(int fd, int flag, const char *format, va_list list);

static void check(int is_right, const char *words) {
  fprintf(stderr, "%s: %s\n", is_right ? "right" : "WRONG", words);
}

static int holds(const char *name, const char *text) {
  char found[1024] = {0};
  int fd = open(name, O_RDONLY);
  ssize_t len = read(fd, found, sizeof found - 1);
  close(fd);
  if (len == (ssize_t)strlen(text) && !strcmp(found, text)) return 1;
  fprintf(stderr, "%s has: %s\n", name, found);
  return 0;
}

static void reopened_in_place(void) {
  char line[64] = {0};
  FILE *stream = fopen("place", "w+");
  check(fputs("one", stream) >= 0 && freopen(NULL, "a", stream) == stream, "freopen(NULL, a)");
  check(fputs("two", stream) >= 0 && fflush(stream) == 0 && holds("place", "onetwo"), "it appends");
  check(freopen(NULL, "r", stream) == stream && fgets(line, sizeof line, stream) && !strcmp(line, "onetwo"), "freopen(NULL, r)");
  check(fputs("x", stream) == EOF, "a stream that reads is not written");
  check(freopen(NULL, "r+", stream) == stream && fputs("ONE", stream) >= 0, "freopen(NULL, r+)");
  check(fclose(stream) == 0 && holds("place", "ONEtwo"), "it writes at its place");
}

static void reopened(void) {
  char host[] = "/tmp/shoal-files-XXXXXX", line[64] = {0};
  FILE *stream = fopen("first", "w");
  fputs("first", stream);
  FILE *again = freopen("second", "w", stream);
  check(again == stream && fputs("second", stream) >= 0, "a stream stays where it is");
  check(holds("first", "first"), "bytes before go into the first file");
  close(mkstemp(host));
  again = freopen(host, "w", stream);
  check(again == stream && holds("second", "second"), "to a file of the host");
  check(fputs("host", stream) >= 0 && fflush(stream) == 0 && holds(host, "host"), "which is written");
  again = freopen("third", "w+", stream);
  check(again != NULL && fputs("third", again) >= 0 && holds(host, "host"), "and back");
  // The former stream is the new one, or refuses all.
  if (again != stream) check(fputs("x", stream) == EOF && fclose(stream) == EOF, "the former stream refuses");
  else check(1, "the former stream refuses");
  rewind(again);
  check(fgets(line, sizeof line, again) && !strcmp(line, "third"), "it is read, too");
  check(freopen("no/such/file", "r", again) == NULL && holds("third", "third"), "a file that is not there");
  unlink(host);
}

static void appended(void) {
  int fd = open("appended", O_RDWR | O_CREAT | O_TRUNC, 0644);
  check(write(fd, "begin", 5) == 5 && lseek(fd, 0, SEEK_SET) == 0, "a file");
  FILE *stream = fdopen(fd, "a");
  check(stream != NULL && (fcntl(fd, F_GETFL) & O_APPEND), "fdopen(a) sets O_APPEND");
  check(fputs("end", stream) >= 0 && fclose(stream) == 0 && holds("appended", "beginend"), "and appends");
  fd = open("appended", O_RDONLY);
  errno = 0;
  check(fdopen(fd, "w") == NULL && errno == EINVAL, "a descriptor that may not be written");
  close(fd);
}

static void closed_output(void) {
  pid_t child = fork();
  if (child == 0) {
    int fd = open("output", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 1);
    close(fd);
    printf("before\n");
    if (fclose(stdout) != 0) _exit(1);
    // The stream's memory is used again.
    for (int at = 0; at < 200; at++) memset(malloc(100 + at * 8), 'A', 100 + at * 8);
    fd = open("other", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 1);
    fflush(NULL);
    if (stdout != NULL && ferror(stdout)) clearerr(stdout);
    exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  check(status == 0 && holds("output", "before\n"), "an output that is closed");
}

static void copied(void) {
  static char bytes[300000];
  int ends[2], from = open("from", O_RDWR | O_CREAT | O_TRUNC, 0644), to = open("to", O_RDONLY | O_CREAT | O_TRUNC, 0644);
  memset(bytes, 'b', sizeof bytes);
  check(write(from, bytes, sizeof bytes) == sizeof bytes, "a file");
  signal(SIGPIPE, SIG_IGN);
  check(pipe(ends) == 0 && close(ends[0]) == 0 && lseek(from, 10, SEEK_SET) == 10, "a pipe without a reader");
  errno = 0;
  check(sendfile(ends[1], from, NULL, 1000) == -1 && errno == EPIPE && lseek(from, 0, SEEK_CUR) == 10, "sendfile fails, nothing moves");
  errno = 0;
  check(splice(from, NULL, ends[1], NULL, 1000, 0) == -1 && errno == EPIPE && lseek(from, 0, SEEK_CUR) == 10, "splice fails, nothing moves");
  errno = 0;
  check(copy_file_range(from, NULL, to, NULL, 1000, 0) == -1 && errno == EBADF && lseek(from, 0, SEEK_CUR) == 10, "copy_file_range fails, nothing moves");
  close(ends[1]);
  check(pipe2(ends, O_NONBLOCK) == 0, "a pipe");
  ssize_t moved = sendfile(ends[1], from, NULL, 200000), got = 0, one;
  check(moved > 0 && moved < 200000 && lseek(from, 0, SEEK_CUR) == 10 + moved, "a short sendfile moves by what it put");
  while ((one = read(ends[0], bytes, sizeof bytes)) > 0) got += one;
  check(got == moved, "the reader has it");
  check(sendfile(ends[1], from, NULL, 1000) == 1000 && lseek(from, 0, SEEK_CUR) == 1010 + moved, "and the next goes on");
  close(from);
  close(to);
  close(ends[0]);
  close(ends[1]);
}

static int listed(int fd, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int done = vdprintf(fd, format, list);
  va_end(list);
  return done;
}

static int checked(int fd, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int done = __vdprintf_chk(fd, 1, format, list);
  va_end(list);
  return done;
}

static void printed(const char *name) {
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
  check(dprintf(fd, "plain\n") == 6, "dprintf");
  check(dprintf(fd, "%d %s %g %d %d %d %d %d %g %g %g %g %g %g %g %g %s\n", 1, "a", 1.5, 2, 3, 4, 5, 6, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0,
                "end") == 38, "dprintf with many");
  check(__dprintf_chk(fd, 1, "%d %d %d %d %d %g\n", 1, 2, 3, 4, 5, 0.5) == 14, "dprintf, checked");
  check(listed(fd, "%s %d\n", "list", 7) == 7 && checked(fd, "%s %d\n", "list", 8) == 7, "vdprintf");
  check(holds(name, "plain\n1 a 1.5 2 3 4 5 6 1 2 3 4 5 6 7 8 end\n1 2 3 4 5 0.5\nlist 7\nlist 8\n"), "what it wrote");
  close(fd);
  errno = 0;
  check(dprintf(fd, "x") == -1 && errno == EBADF, "dprintf after the close");
}

static void mapped(void) {
  int fd = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0644);
  size_t size = (9 << 20) + 5;
  check(ftruncate(fd, size) == 0 && pwrite(fd, "last", 4, size - 4) == 4 && pwrite(fd, "page", 4, 4096) == 4, "a file");
  char *at = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
  check(at != MAP_FAILED && !memcmp(at + size - 4, "last", 4) && !at[size], "a mapping to the end");
  char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 4096);
  check(page != MAP_FAILED && !memcmp(page, "page", 4) && !memcmp(at + 4096, "page", 4), "a mapping of a page");
  munmap(at, size);
  munmap(page, 4096);
  close(fd);
}

int main(void) {
  alarm(120);
  reopened_in_place();
  reopened();
  appended();
  closed_output();
  copied();
  printed("printed");
  printed("/tmp/shoal-files-printed");
  unlink("/tmp/shoal-files-printed");
  mapped();
  return 0;
}
