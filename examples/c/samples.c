/* Many small files by two calls: each of a set of samples in a file of its own, made and read back.
 *
 *     cc samples.c $(pkg-config --cflags --libs shoal) -o samples
 *     ./samples /home/me/data=plain            or: ./samples shoal://HOST:PORT/NAME KEY */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shoal.h>

enum { SAMPLES = 500, LEN = 2048 };

static void check(int64_t done, const char *call) {
  if (done >= 0) return;
  fprintf(stderr, "%s\n%s failed\n", shoal_error_words(), call);
  exit(1);
}

int main(int count, char **arguments) {
  static char paths[SAMPLES][32];
  static unsigned char data[SAMPLES][LEN], back[SAMPLES][LEN];
  static shoal_create_entry creates[SAMPLES];
  static shoal_read_entry reads[SAMPLES];
  shoal_fs fs;
  int at;
  if (count < 2) {
    fprintf(stderr, "usage: samples WHERE [KEY]\n");
    return 2;
  }
  check(shoal_connect(arguments[1], count > 2 ? arguments[2] : NULL, &fs), "connect");
  check(shoal_mkdir(fs, "samples", 0755), "mkdir");
  for (at = 0; at < SAMPLES; at++) {
    snprintf(paths[at], sizeof paths[at], "samples/%04d", at);
    memset(data[at], at % 251, LEN);
    creates[at].path = paths[at];
    creates[at].data = data[at];
    creates[at].len = (size_t)(1 + at % LEN);
    reads[at].path = paths[at];
    reads[at].buffer = back[at];
    reads[at].len = LEN;
  }
  /* The number of entries that succeeded; each entry has its own error. */
  if (shoal_create_many(fs, creates, SAMPLES, 0644) != SAMPLES) {
    for (at = 0; at < SAMPLES; at++)
      if (creates[at].error != 0) fprintf(stderr, "%s: %s\n", paths[at], strerror(creates[at].error));
    return 1;
  }
  if (shoal_read_many(fs, reads, SAMPLES) != SAMPLES) {
    fprintf(stderr, "the first that failed: %s\n", shoal_error_words());
    return 1;
  }
  for (at = 0; at < SAMPLES; at++) {
    if (reads[at].done != 1 + at % LEN || memcmp(back[at], data[at], (size_t)reads[at].done) != 0) {
      fprintf(stderr, "%s differs\n", paths[at]);
      return 1;
    }
    check(shoal_unlink(fs, paths[at]), "unlink");
  }
  check(shoal_rmdir(fs, "samples"), "rmdir");
  check(shoal_close(fs), "close");
  printf("samples: %d files by two calls\n", SAMPLES);
  return 0;
}
